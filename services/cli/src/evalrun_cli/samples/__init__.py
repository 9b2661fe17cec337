"""Samples for people: what `evalrun show` and `evalrun samples` print, of ended and of running runs."""
