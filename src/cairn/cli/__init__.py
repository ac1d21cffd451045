"""Arguments, rendering, progress; no logic."""
