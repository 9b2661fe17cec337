"""Reconciles runs: observes, decides, writes. The only package that changes the cluster."""
