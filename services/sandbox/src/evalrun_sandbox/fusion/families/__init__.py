"""A module per family of datasets: its prompts and its judging rules. Pure.

A family returns a program to run and, if the verdict is not its exit status, the expected outputs. `registry` maps
datasets to families.
"""
