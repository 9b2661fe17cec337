"""Publishes the headline metrics of a finished run in public formats."""
