"""The run's ledger: what is pending, generated and judged, in memory (board, items, leases) and on disk (SQLite)."""
