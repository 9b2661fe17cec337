"""`evalrun index`, `sql`, `find` and `flips`: questions about many runs at once."""
