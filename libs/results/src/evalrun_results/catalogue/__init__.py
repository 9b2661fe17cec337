"""The catalogue of many runs: what `evalrun sql`, `find` and `flips` read instead of every run's own files.

It lies in the directory or bucket of the runs, and needs no server. `entry` says what is kept of a run, and `store`
writes it.
"""
