"""The generator: leases pending work from the ledger, balances it over endpoints, submits the completions.

It knows no tests, no metrics and no Kubernetes. Pure: retry, balancer, openai_api. I/O: endpoints, ledger_client. These
combine them: endpoint_fleet, endpoint_admission, completion_client, submitter, work_loop, app. `recorded` is a separate
server.
"""
