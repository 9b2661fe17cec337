"""EVAL@turns: what a model is told about a failed answer, and when its next turn opens. Pure."""
