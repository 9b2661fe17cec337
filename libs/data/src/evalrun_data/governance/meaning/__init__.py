"""The audit's second stage: problems of the same meaning, by a local embedding model and a model that judges pairs."""
