"""The operator: reconciles EvalRuns and EvalSchedules into Kubernetes objects and reports their status.

The API types are in `evalrun_api`, the source of the CRDs.
"""
