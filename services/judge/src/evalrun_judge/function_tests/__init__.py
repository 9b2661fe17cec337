"""Function tests: assertions are replayed in a contained child of the gateway, and calls are made in the sandbox."""
