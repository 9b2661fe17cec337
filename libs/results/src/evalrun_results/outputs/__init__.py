"""Outputs of a run: result tables, QA logs, summary; to a folder or any fsspec URL."""
