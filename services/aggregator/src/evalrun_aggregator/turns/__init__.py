"""EVAL@turns: the feedback on a failed completion, and when the next turn opens. Pure."""
