"""`evalrun show` and `evalrun samples`: print samples of ended and running runs."""
