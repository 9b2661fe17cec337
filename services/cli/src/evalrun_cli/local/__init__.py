"""A run on one machine: its folder, the services as child processes, the display."""
