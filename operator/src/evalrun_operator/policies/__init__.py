"""Decisions over plain data, one a module: no manifest, no I/O, no clock but the one that is passed in."""
