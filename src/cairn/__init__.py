"""A content-addressed checkpoint store.

It keeps every checkpoint of a training run, exactly, for the price of what changed.
"""
