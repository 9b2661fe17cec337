"""The catalogue of many runs: `evalrun sql`, `find` and `flips` read it instead of every run's own files.

It lies in the directory or bucket of the runs, and needs no server. `entry` defines the stored rows of a run, and
`store` writes them.
"""
