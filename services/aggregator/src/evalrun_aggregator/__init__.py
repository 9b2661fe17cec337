"""The aggregator: the run's ledger, dispatch to the judge, metrics and every output.

Pure: estimators, metrics, sampling. I/O: ledger (SQLite), judge_client, outputs, service. Runs no user code.
"""
