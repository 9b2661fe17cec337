"""Caches verdicts by the digest of everything that they depend on: in memory, then in Redis."""
