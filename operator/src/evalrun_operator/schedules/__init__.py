"""EvalSchedules: when to look for checkpoints, which of them get a run, and what is remembered of them.

`cron`, `runs`, `choice`, `merge_step`, `run_history`, `objects` and `reconcile` are pure; `controller` alone
talks to the API server.
"""
