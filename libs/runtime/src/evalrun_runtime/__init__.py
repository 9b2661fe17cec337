"""Process plumbing of the services: start, settings, logs, health, metrics, drain on SIGTERM.

Nothing here knows problems, verdicts or Kubernetes. Only `grpc_server` and `grpc_channel` in `connections/` may import
grpc: the sandbox's image does not contain it.
"""
