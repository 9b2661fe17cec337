"""The sandbox service: runs a program on many inputs, contained, within its own slots.

It never knows an expected output. Imports nothing of ours but `evalrun_runtime`.
"""
