"""Function tests' calls: the harness that calls a program's functions, and the values that cross.

Both are read as text by path and run inside the containment, so they import nothing but the standard library.
"""
