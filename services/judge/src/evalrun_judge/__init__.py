"""The judge gateway: a submission and its tests in, a verdict out.

Pure: comparators, extraction, fences, submission, verdict, records, suites, short_runs. `families/`, one module a test
family, and `function_tests/` plan and judge. I/O: rpc/, sandboxes/, pool/, cache/, app. No state that a restart may
lose.
"""
