"""Paged KV memory: one pool, allocated once."""
