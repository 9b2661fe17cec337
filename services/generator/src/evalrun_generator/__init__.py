"""The generator: asks the ledger for pending work, spreads it over endpoints by load, pushes answers back.

Knows no test, no metric and nothing of Kubernetes. Pure: retry, balancer, openai_api. I/O: endpoints, ledger_client,
and what puts them together: fleet, admission, asker, submitter, work_loop, app. `recorded` is a server of its own.
"""
