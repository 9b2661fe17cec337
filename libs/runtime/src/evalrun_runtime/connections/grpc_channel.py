"""A gRPC channel as every client wants it: sizes, balancing, a token, and a certificate that may change.

Apart from the server: a client's image needs neither health checking nor reflection.
"""

# ruff: noqa: ANN401 - a reloading channel passes on what it does not look at
# grpcio's stubs are generic, its classes are not.
from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc

from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.tls_files import TlsIdentity, TlsSource

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""A contest problem's tests reach tens of MB; gRPC's own default of 4 MB would refuse them."""

OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)

LAST_CALLS_SECONDS = 3600.0
"""Seconds for calls that began with a replaced certificate: more than any call or stream takes."""


def token_metadata(tokens: BearerTokens | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that carries the token to send now."""
    return () if tokens is None else (("authorization", f"Bearer {tokens.sent}"),)


def open_channel(address: str, tls: TlsSource | None = None) -> grpc.aio.Channel:
    """Open a channel that balances over the name's addresses.

    Args:
        address: `grpc://host:port`, `dns:///name:port` or `host:port`.
        tls: certificate of this side, and authorities for the server, whose certificate must name the host. None for
            plain text.
    """
    target = address.removeprefix("grpc://")
    if tls is None:
        return grpc.aio.insecure_channel(target, options=OPTIONS)
    return ReloadingChannel(lambda identity: _secure_channel(target, identity), tls)


def _secure_channel(target: str, identity: TlsIdentity) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(identity.authorities, identity.key, identity.certificate)
    return grpc.aio.secure_channel(target, credentials, options=OPTIONS)


class ReloadingChannel(grpc.aio.Channel):
    """A channel that opens another channel when its certificate changes; calls in flight finish on the old channel.

    The credentials of grpcio's channels cannot change, and clients keep a channel and its stubs for a whole run.
    """

    def __init__(self, open_one: Callable[[TlsIdentity], grpc.aio.Channel], tls: TlsSource) -> None:
        self._open_one = open_one
        self._tls = tls
        self._identity = tls.current
        self._channel = open_one(self._identity)
        self._former: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def current(self) -> grpc.aio.Channel:
        """Return the channel for the next call. Called inside the running loop."""
        identity = self._tls.current
        if identity is not self._identity:
            closing = asyncio.ensure_future(self._channel.close(LAST_CALLS_SECONDS))
            self._former[closing] = self._channel
            closing.add_done_callback(lambda task: self._former.pop(task, None))
            self._identity, self._channel = identity, self._open_one(identity)
        return self._channel

    async def close(self, grace: float | None = None) -> None:
        """Close it, with the channels that calls are still under way on."""
        former = dict(self._former)
        for closing in former:
            closing.cancel()
        await asyncio.gather(*former, return_exceptions=True)
        await asyncio.gather(*(channel.close(grace) for channel in [*former.values(), self._channel]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See `grpc.aio.Channel`."""
        return self.current().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See `grpc.aio.Channel`."""
        await self.current().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See `grpc.aio.Channel`."""
        await self.current().channel_ready()

    def unary_unary(self, *method: Any, **coding: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._on_the_current("unary_unary", *method, **coding)

    def unary_stream(self, *method: Any, **coding: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._on_the_current("unary_stream", *method, **coding)

    def stream_unary(self, *method: Any, **coding: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._on_the_current("stream_unary", *method, **coding)

    def stream_stream(self, *method: Any, **coding: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._on_the_current("stream_stream", *method, **coding)

    def _on_the_current(self, kind: str, *method: Any, **coding: Any) -> Callable[..., Any]:
        """Return a callable that calls a method on the channel that is current at each call."""
        channel = self._channel
        call = getattr(channel, kind)(*method, **coding)

        def on_the_current(*request: Any, **options: Any) -> Any:
            nonlocal channel, call
            if (current := self.current()) is not channel:
                channel, call = current, getattr(current, kind)(*method, **coding)
            return call(*request, **options)

        return on_the_current
