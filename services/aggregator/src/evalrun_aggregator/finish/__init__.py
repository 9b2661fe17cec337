"""The end of a run: its samples, its audit record, and the call of the writer of its outputs."""
