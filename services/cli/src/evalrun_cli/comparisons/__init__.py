"""Offline commands on finished runs: compare, gate, report. They need no service."""
