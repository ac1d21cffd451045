"""Commits as files on disk."""
