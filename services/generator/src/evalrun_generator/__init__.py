"""The generator: asks the ledger for pending work, spreads it over endpoints by load, pushes answers back.

Knows no test, no metric and nothing of Kubernetes.
"""
