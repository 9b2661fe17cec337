"""The samples of a run that goes on, read from its ledger, as rows of its results. Reads alone.

`ledger_batches` reads a ledger; `feed_server` shows its rows on a port of this machine alone, over which the page of a
run in a cluster has them (docs/decisions/0040-samples-over-a-port-forward.md).
"""
