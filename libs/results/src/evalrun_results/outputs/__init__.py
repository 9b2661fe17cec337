"""Outputs of a run: result tables, QA logs, summary; to a directory or any fsspec URL."""
