"""The port that shows a process's metrics to Prometheus, to everybody or only to clients with a token."""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import start_http_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

BEARER = "Bearer "


def start_metrics_server(port: int, host: str, token_sha256: Sequence[str]) -> int:
    """Show this process's metrics from a thread of its own; return the port.

    Args:
        port: to listen on; 0 for any free port.
        host: to listen on.
        token_sha256: digests of the tokens that scrapers may send; empty requires no token.

    Raises:
        OSError: the port cannot be used.
    """
    server, _ = start_http_server(port, addr=host)
    if token_sha256 and (shown := server.get_app()) is not None:
        # The server answers already, but no series is labelled before the service works.
        server.set_app(guard_application(shown, lambda token: is_known(token, token_sha256)))
    return server.server_port


def guard_application(shown: "WSGIApplication", accept: Callable[[str], bool]) -> "WSGIApplication":
    """Return an application that answers 401 unless the request's bearer token is accepted."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        header = str(environ.get("HTTP_AUTHORIZATION", ""))
        if header.startswith(BEARER) and accept(header.removeprefix(BEARER)):
            return shown(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"metrics are for scrapers with a token (docs/observability.md)\n"]

    return answer


def is_known(token: str, token_sha256: Sequence[str]) -> bool:
    """Return whether a token's digest is among the accepted digests.

    Pods hold digests alone: whoever reads them in a pod can scrape no other.
    """
    given = hashlib.sha256(token.encode(errors="replace")).hexdigest()
    return any(hmac.compare_digest(given, known) for known in token_sha256)
