"""Metrics and their intervals, from samples one by one. Pure."""
