"""Commands on a cluster's EvalRuns: apply, follow, logs, results."""
