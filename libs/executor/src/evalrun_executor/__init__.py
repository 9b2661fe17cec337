"""Contained execution: runs a program on many inputs, within its own slots.

The package never knows an expected output, serves no port, and imports nothing of ours but `evalrun_runtime` and
`evalrun_registry`. `contained/` is the code inside the containment, `calls/` the values and calls of function tests.
"""
