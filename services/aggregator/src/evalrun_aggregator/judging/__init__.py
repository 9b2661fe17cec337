"""Completions to verdicts: lanes of judge streams, retries, and what the judges say of themselves."""
