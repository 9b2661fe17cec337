"""EVAL@turns: builds the feedback on a failed completion, and decides when the next turn opens. Pure."""
