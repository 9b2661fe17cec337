"""The rows of a run's samples as Arrow batches: read from its outputs, and chosen by conditions like `status=timeout`.

Nothing here decides a verdict or computes a metric.
"""
