"""The run's ledger: pending, generated and judged items, in memory (item states, leases) and on disk (SQLite)."""
