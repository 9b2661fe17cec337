"""A gRPC channel as every client wants it: sizes, balancing, a token.

Apart from the server: a client's image needs neither health checking nor reflection.
"""

import grpc

from evalrun_runtime.bearer_tokens import BearerTokens

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""A contest problem's tests reach tens of MB; gRPC's own default of 4 MB would refuse them."""


def token_metadata(tokens: BearerTokens | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that carries the token to send now."""
    return () if tokens is None else (("authorization", f"Bearer {tokens.sent}"),)


def open_channel(address: str) -> grpc.aio.Channel:
    """Open a channel to `grpc://host:port`, `dns:///name:port` or `host:port`, balanced over what the name gives."""
    return grpc.aio.insecure_channel(
        address.removeprefix("grpc://"),
        options=[
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.lb_policy_name", "round_robin"),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ],
    )
