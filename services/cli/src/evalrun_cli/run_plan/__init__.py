"""What a run will take, before it starts: pods and their requests, GPU hours, wall time."""
