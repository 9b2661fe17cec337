"""Admission for a stock SandboxFusion server, which has none: a sidecar that owns its pod's slots.

A stock server starts whatever it is sent, at once, and its time limits are wall time: 24 correct programs at once on 2
CPUs are 24 time-outs. Behind this proxy it runs as many as it has slots; who comes beyond them is told so (429).
"""
