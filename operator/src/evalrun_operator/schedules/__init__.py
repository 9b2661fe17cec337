"""EvalSchedules: when to list checkpoints, which checkpoints get a run, and what the status remembers about them.

`cron`, `runs`, `choice`, `merge_step`, `run_history`, `objects` and `reconcile` are pure. Only `controller` talks to
the API server.
"""
