"""Calls of function tests: the harness that calls a program's functions, and the values that cross.

These modules are read as text by path and run inside the containment, so they import only the standard library.
"""
