"""The aggregator: the run's ledger, dispatch to the judge, metrics and every output. Runs no user code.

`start/`: what a run starts with; `ledger/`: its items, in SQLite; `judging/`: answers to the judge; `turns/`: when a
further turn opens; `finish/`: outputs and the end. `run` drives all of them, `service` is its gRPC, `app` wires.
"""
