"""Exports the metrics of a finished run to Weights & Biases and MLflow.

`content` builds the exported values (pure), `wandb_run` and `mlflow_run` are the `Exporter`s, one per service, and
`process` runs an exporter in a child process with a hard limit. An export may fail or hang; the run never does for its
sake.
"""
