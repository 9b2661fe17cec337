"""Exports the metrics of a finished run to Weights & Biases and MLflow.

`content` says what is exported (pure), `wandb_run` and `mlflow_run` are the `Exporter`s, one module a service, and
`process` runs one of them in a process of its own with a hard limit. An export may fail or hang; the run never does for
its sake.
"""
