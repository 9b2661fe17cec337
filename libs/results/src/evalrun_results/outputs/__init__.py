"""What a run writes: result tables, QA logs, summary; to a folder or any fsspec URL."""
