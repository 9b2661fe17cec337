"""One pass over a run after the other: gathers, decides, writes. The only place that changes the cluster."""
