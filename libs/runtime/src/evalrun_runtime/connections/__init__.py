"""Connections between processes: gRPC channels and servers, HTTP listeners, TLS and bearer tokens."""
