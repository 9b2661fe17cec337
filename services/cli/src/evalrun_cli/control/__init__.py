"""`evalrun ctl`: acts on a run while it goes on, on this machine or in a cluster."""
