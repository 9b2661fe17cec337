"""Reads the samples of a running run from its ledger, as rows of its results. Changes nothing.

`ledger_batches` reads a ledger. `feed_server` serves its rows on a port of the loopback interface, which `evalrun view`
reads for a run in a cluster (docs/decisions/0040-samples-over-a-port-forward.md).
"""
