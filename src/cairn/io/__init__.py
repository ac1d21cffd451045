"""The one seam for everything durable: files, entries, leases, locks, paths."""
