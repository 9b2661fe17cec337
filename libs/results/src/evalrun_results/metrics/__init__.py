"""Computes metrics and their intervals from a stream of samples. Pure."""
