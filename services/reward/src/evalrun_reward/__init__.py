"""Returns the judge's verdicts as rewards over HTTP, for trainers: verl, TRL, OpenRLHF, or anything that can post JSON.

Pure: batches, rewards, retries, openrlhf, openapi. I/O: app, judge_calls, sessions/. The service knows datasets, and
has the judge run every program.
"""
