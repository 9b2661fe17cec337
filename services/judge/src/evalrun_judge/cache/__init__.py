"""Verdicts reached before, by the digest of all that they depend on: memory, then Redis."""
