"""The judge gateway: a submission and its tests in, a verdict out.

Pure: comparison, extraction, fences, plan, checker, verdict, records, function_tests, endpoint. I/O: sandboxes/, pool,
assertions, judging, service, app. No state that a restart may lose.
"""
