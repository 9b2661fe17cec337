"""Writes a run's samples as a log of Inspect (`.eval`).

`samples` and `header` are pure; `log_file` writes. No package of Inspect is needed: see
docs/decisions/0016-inspect-logs-by-their-package.md.
"""
