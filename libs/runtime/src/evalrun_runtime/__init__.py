"""Process plumbing of the services: start, settings, logs, health, metrics, drain on SIGTERM.

What knows a problem, a verdict or Kubernetes does not live here. Of it only `grpc_server` and `grpc_channel` in
`connections/` may import grpc: the sandbox's image has none.
"""
