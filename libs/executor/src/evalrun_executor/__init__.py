"""Contained execution: runs a program on many inputs, within its own slots.

It never knows an expected output and serves no port. Imports nothing of ours but `evalrun_runtime`. `contained/` is
what runs inside the containment, `calls/` the values and calls of function tests.
"""
