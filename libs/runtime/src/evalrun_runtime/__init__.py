"""Process plumbing of the services: start, settings, logs, health, metrics, drain on SIGTERM.

What knows a problem, a verdict or Kubernetes does not live here. Only `grpc_server` and `grpc_channel` may import grpc:
the sandbox's image has none.
"""
