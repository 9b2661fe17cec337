"""One module a problem format: a row in, a `Problem` out. Which format a row has is decided in `readers`."""
