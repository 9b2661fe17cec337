"""Function tests: assertions replayed in a contained child of the gateway, calls made in the sandbox."""
