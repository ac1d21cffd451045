"""Entries, commits, runs, tags, revisions and retention."""
