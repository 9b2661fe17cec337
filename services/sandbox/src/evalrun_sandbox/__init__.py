"""The sandbox service: runs a program on many inputs, contained, within its own slots.

The sandbox never knows an expected output.
"""
