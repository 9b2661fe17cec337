"""A run on one machine: its directory, the services as child processes, the display."""
