"""A sidecar that limits the concurrency of a stock SandboxFusion server, which has no limit itself.

A stock server starts every program at once, and its time limits are wall time: 24 correct programs at once on 2 CPUs
are 24 timeouts. Behind this proxy it runs as many as it has slots; further requests are refused with 429.
"""
