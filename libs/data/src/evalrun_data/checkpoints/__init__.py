"""Finds the checkpoints that a training writes: which are complete and whole, and which of them are new.

`layout`, `readiness` and `choice` decide purely over listings; `store` reads a directory or bucket through fsspec;
`python -m evalrun_data.checkpoints` is the Job of a schedule.
"""
