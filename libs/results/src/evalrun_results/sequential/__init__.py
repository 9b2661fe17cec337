"""Decisions that may be looked at after every problem: betting confidence sequences and the order of problems. Pure."""
