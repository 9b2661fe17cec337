"""Plan of a run before it starts: pods and their requests, GPU hours, wall time."""
