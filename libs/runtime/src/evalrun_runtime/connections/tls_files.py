"""Mutual TLS: a process's certificate, its key, and the authorities that both sides of a connection are checked by.

A directory has the layout of cert-manager's Secrets: `tls.crt`, `tls.key` and `ca.crt`. One identity serves a process
as server and as client.
"""

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self

from evalrun_runtime.connections.reloaded_files import ReloadedFiles

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITIES: Final = "ca.crt"
FILES: Final = (CERTIFICATE, KEY, AUTHORITIES)


@dataclass(frozen=True)
class TlsIdentity:
    """A certificate with its key, and the authorities whose certificates the other side may show."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes
    server_context: ssl.SSLContext = field(repr=False)
    """Asks clients for a certificate."""
    client_context: ssl.SSLContext = field(repr=False)

    @classmethod
    def load(cls, certificate: bytes, key: bytes, authorities: bytes) -> Self:
        """Return the identity of three PEM files. Raises ValueError where they cannot be used together."""
        contexts = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        for context in contexts:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                _load_chain(context, certificate, key)
            except ssl.SSLError as error:
                cause = error.reason or "one of them is not PEM"
                raise ValueError(f"{CERTIFICATE} and {KEY} are no certificate and its key: {cause}") from error
            try:
                context.load_verify_locations(cadata=authorities.decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                raise ValueError(f"{AUTHORITIES} holds no certificates in PEM: {error}") from error
        # A resumed session would not be checked against the current authorities.
        contexts[0].num_tickets = 0
        return cls(certificate, key, authorities, *contexts)


def _load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate with its key. OpenSSL reads the two only from paths. A memory file has a path and keeps the
    key off every disk."""
    descriptor = os.memfd_create("tls")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


class TlsSource(Protocol):
    """Interface of a holder of the current TLS identity."""

    @property
    def current(self) -> TlsIdentity:
        """The identity of the next connection."""
        ...


class TlsFiles:
    """The identity in a directory, read again when it changes. Raises BadInputError where it cannot be used."""

    def __init__(self, directory: Path) -> None:
        self._files = ReloadedFiles([directory / name for name in FILES], _identity)

    @classmethod
    def load(cls, directory: Path | None) -> "TlsFiles | None":
        """Return the files that a setting names; None if it is not set. Raises BadInputError."""
        return None if directory is None else cls(directory)

    @property
    def current(self) -> TlsIdentity:
        """The identity for the next connection: the newest valid identity."""
        return self._files.current


@dataclass(frozen=True)
class GivenTls:
    """An identity that does not change."""

    current: TlsIdentity


def make_listener_context(source: TlsSource) -> ssl.SSLContext:
    """Return the context of a listener. Each handshake takes the certificate, key and authorities of that moment.

    A context that has loaded an authority cannot forget it, so a rotation needs another context. OpenSSL takes all
    three from the context that is set while it reads the ClientHello.
    """

    def take_current(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = source.current.server_context

    listener = source.current.server_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = listener.minimum_version
    context.verify_mode = listener.verify_mode
    context.num_tickets = listener.num_tickets
    context.sni_callback = take_current
    return context


def _identity(contents: Sequence[bytes]) -> TlsIdentity:
    return TlsIdentity.load(*contents)
