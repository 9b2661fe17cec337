"""Dashboards and alert rules as typed code; `tools/generate_monitoring.py` writes them into the chart."""
