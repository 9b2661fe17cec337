"""The judge gateway: takes a submission and its tests, returns a verdict.

Pure: comparators, extraction, fences, submission, verdict, records, suites, short_runs. `families/`, with a module per
test family, and `function_tests/` plan and judge. I/O: rpc/, sandboxes/, pool/, cache/, app. A restart loses no state
that matters.
"""
