"""The worker's side of the ledger: leases work, submits completions."""
