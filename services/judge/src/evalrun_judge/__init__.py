"""The judge gateway: takes a submission and its tests, returns a verdict.

Pure modules: bare_code, comparators, cpython_texts, extraction, fences, records, short_runs, status, submission,
suites, verdict, waves. `families/`, with a module per test family, and `function_tests/` plan and judge. `rpc/`,
`sandboxes/`, `pool/`, `cache/` and `app` do I/O. A restart loses no state that matters.
"""
