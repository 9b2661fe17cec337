"""The run's ledger: what is pending, generated and judged, in memory (item states, items, leases) and on disk
(SQLite)."""
