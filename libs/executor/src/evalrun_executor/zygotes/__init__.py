"""Zygotes from outside: starts and asks them, and reads what they and their programs send."""
