"""The judge's verdicts as rewards over HTTP, for trainers: verl, TRL, OpenRLHF, or anything that can post JSON.

Pure: rewards, retries, openrlhf, openapi. I/O: app, judge_calls. It knows datasets and runs no program: the judge
does.
"""
