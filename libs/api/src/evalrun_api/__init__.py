"""The EvalRun API: models, rules (CEL), names, the CRD, and the run configuration that a run's parts are given.

`run_config` is the contract between operator, command line, aggregator and generator; it imports nothing of
Kubernetes. Nothing here does I/O but reading a manifest or a run configuration.
"""
