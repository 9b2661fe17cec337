"""One module a family of datasets: how a row is shown, and how a completion is judged. Pure.

A family gives a program to run and, where the verdict is not its exit status, how to read its outputs. `registry` says
which dataset belongs to which.
"""
