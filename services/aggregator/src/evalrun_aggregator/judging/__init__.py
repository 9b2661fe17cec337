"""Turns completions into verdicts: streams to the judge, retries, and the health of the judges."""
