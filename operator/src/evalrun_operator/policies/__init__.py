"""Decisions over plain data, one per module, without manifests, I/O, or any clock but an argument."""
