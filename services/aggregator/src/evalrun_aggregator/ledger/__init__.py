"""The run's ledger: pending, generated and judged items, in memory (item states, items, leases) and on disk
(SQLite)."""
