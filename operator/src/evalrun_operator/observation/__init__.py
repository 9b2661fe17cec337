"""Observed state of the cluster: watches, and the records made from what they report."""
