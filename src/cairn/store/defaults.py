"""What is done where the caller does not say."""

PATIENCE_SECONDS = 10.0
"""How long gc waits for operations that were running when it moved packs."""

THRESHOLD = 0.25
"""The dead share of a pack from which it is rewritten: to free a byte then costs the writing of three at most."""

SAMPLE = 0.05
"""The share of all bytes that a sampling verification reads."""
