"""A content-addressed checkpoint store: every checkpoint of a training run, exactly, for the price of what changed."""
