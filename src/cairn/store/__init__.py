"""The facade: what `cairn.open` and `cairn.init` return."""
