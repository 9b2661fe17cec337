"""The judge gateway: a submission and its tests in, a verdict out.

Pure: comparison, extraction, verdict, function_tests. I/O: sandboxes/, service, app. No state that a restart may lose.
"""
