"""Blobs by id: packs, deduplication and the index."""
