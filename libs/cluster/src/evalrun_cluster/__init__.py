"""The Kubernetes client that operator and command line share: kinds, errors, reads and writes.

I/O only. What to create, and when, is decided elsewhere. Imports nothing of ours but `evalrun_api` and the runtime.
"""
