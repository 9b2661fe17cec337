"""Finds sandboxes, watches their health, shares their slots, and retries and hedges calls to them."""
