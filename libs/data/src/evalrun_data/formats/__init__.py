"""Parsers, one module per problem format, that turn a row into a `Problem`. `readers` detects the format."""
