"""The gateway's gRPC service: its messages, and the requests of a stream."""
