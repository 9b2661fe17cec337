"""Decisions over plain data, one per module, without manifests or I/O. A clock is an argument."""
