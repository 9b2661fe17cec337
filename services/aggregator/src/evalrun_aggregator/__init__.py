"""The aggregator: the run's ledger, dispatch to the judge, metrics and every output. Runs no user code.

Pure: items, board, leases, dispatch, progress, replicas, submission, estimators, metrics, sampling. I/O: ledger
(SQLite), judge_client (gRPC), outputs, service. `app` wires; `run` drives: completions in, verdicts, outputs, the end.
"""
