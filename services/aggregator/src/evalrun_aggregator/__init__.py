"""The aggregator: the run's ledger, dispatch to the judge, metrics and every output. Runs no user code.

`start/` prepares a run, `ledger/` keeps its items in SQLite, `judging/` sends completions to the judge, `turns/` opens
further turns, and `finish/` writes the outputs. `run_driver` drives all of them, `service` is the gRPC service, and
`app` wires them.
"""
