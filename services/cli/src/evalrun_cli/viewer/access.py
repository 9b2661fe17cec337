"""Decides who may read the page: on this machine whoever knows its address, from elsewhere whoever has a token or comes
through a proxy."""

import asyncio
import hmac
import ipaddress
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qs

from aiohttp import web

from evalrun_cli.viewer.login_page import LOGIN_POLICY, login_page
from evalrun_runtime.connections.bearer_tokens import BearerTokens, sign
from evalrun_runtime.exits import BadInputError

LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
HEALTH: Final = "/healthz"
SESSION: Final = "__Host-evalrun-view"
"""The cookie's name: browsers take it from this host alone, and never send it unencrypted over a network."""
SESSION_SECONDS: Final = 12 * 3600
MAX_FORM_BYTES: Final = 4096
FORM_SECONDS: Final = 10.0
MIN_TOKEN_CHARACTERS: Final = 20
"""Minimum length of a token. Nothing slows guesses down, so a token must be too long to guess."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Access(Protocol):
    """Decides about each request before any data of a run is read."""

    prefix: str
    """Beginning of every route of the page."""
    path: str
    """Path of the page in its address."""

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes besides the page."""

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the reply that refuses a request; None if it is let through."""


class AddressAccess:
    """Access on this machine: a token is the first part of every path.

    Args:
        token: token that every request needs.
        port: returns the port of the page; called once the page is served.
    """

    prefix = "/{token}"

    def __init__(self, token: str, port: Callable[[], int]) -> None:
        self.path = f"/{token}/"
        self._token = token
        self._port = port

    def routes(self) -> Sequence[web.RouteDef]:
        """Return no route."""
        return ()

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the reply to a request without the token, or under a foreign host name; None for any other."""
        told = "evalrun view: open the address that the command printed\n"
        # A name that an attacker's DNS server lets point here would otherwise make this server part of their origin.
        if request.host not in {f"{name}:{self._port()}" for name in LOCAL_NAMES}:
            return web.Response(status=421, text=told)
        if not hmac.compare_digest(request.match_info.get("token", "").encode(), self._token.encode()):
            return web.Response(status=404, text=told)
        return None


@dataclass(frozen=True)
class SharedOptions:
    """The command's options for serving the page to others."""

    token_file: Path | None = None
    trusted_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or CIDR blocks."""
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrustedProxy:
    """An authenticating proxy, which names the user in a header."""

    header: str
    networks: tuple[Network, ...]

    def vouches(self, named: Sequence[str], peer: str) -> bool:
        """Return whether a request came through the trusted proxy and names exactly one user.

        Args:
            named: the header's values; several values mean that the client forged one.
            peer: address from which the connection came.
        """
        if len(named) != 1 or not named[0].strip():
            return False
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)


class SharedAccess:
    """Access for others: by a bearer token, a session that a token opened, or a proxy that vouches for the user.

    The server stores no sessions: a session is an end time signed with the token that opened it. So it outlives a
    restart of the server, and ends when the token is no longer accepted.

    Args:
        hosts: names by which browsers reach the page, besides those of this machine.
        tokens: accepted tokens; None: only a proxy lets people in.
        proxy: the trusted proxy; None: no header names a user.
        clock: Unix seconds.
        form_seconds: maximum seconds until the login form has arrived completely.
    """

    prefix = ""
    path = "/"

    def __init__(
        self,
        hosts: Iterable[str],
        tokens: BearerTokens | None,
        proxy: TrustedProxy | None,
        clock: Callable[[], float],
        form_seconds: float = FORM_SECONDS,
    ) -> None:
        self._hosts = {*LOCAL_NAMES, *(host.lower() for host in hosts)}
        self._tokens = tokens
        self.proxy = proxy
        self._clock = clock
        self._form_seconds = form_seconds

    @classmethod
    def from_options(cls, options: SharedOptions, clock: Callable[[], float]) -> "SharedAccess":
        """Return the access that the options ask for. Raises BadInputError if they would admit everybody or nobody."""
        if options.token_file is None and options.trusted_header is None:
            if options.allowed_hosts:
                raise BadInputError("--allowed-host: says nothing without --token-file or --trusted-header: add one")
            raise BadInputError("--host: others could read every answer: add --token-file, or --trusted-header")
        if (options.trusted_header is None) != (not options.trusted_proxies):
            raise BadInputError(
                "--trusted-header and --trusted-proxy: one is missing: name the proxy's header and its addresses, as "
                "anyone else could send the header too"
            )
        proxy = None
        if options.trusted_header is not None:
            proxy = TrustedProxy(options.trusted_header, tuple(map(_network, options.trusted_proxies)))
        tokens = None if options.token_file is None else _tokens_in(options.token_file)
        return cls(options.allowed_hosts, tokens, proxy, clock)

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the health check, and the route to which the login page sends the token."""
        return (web.get(HEALTH, _say_healthy), web.post("/", self._log_in))

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the reply to a request under a foreign host name, or without valid credentials; None for any other.

        The health check is let through under any name, and it and the login need no credentials.
        """
        # The kubelet asks under the pod's address.
        if request.path == HEALTH:
            return None
        # As on one machine, a foreign name that points here would make this page part of its owner's origin.
        if _strip_port(request.host) not in self._hosts:
            return web.Response(status=421, text="evalrun view: not served under this host name (--allowed-host)\n")
        if self._lets_in(request) or (request.method == "POST" and request.path == "/"):
            return None
        return self._login(request.path)

    def _lets_in(self, request: web.Request) -> bool:
        if self.proxy is not None and self.proxy.vouches(
            request.headers.getall(self.proxy.header, []), request.remote or ""
        ):
            return True
        if self._tokens is None:
            return False
        given = request.headers.get("Authorization")
        if given is not None:
            return self._tokens.accept(given)
        return self.is_session(request.cookies.get(SESSION, ""))

    def is_session(self, cookie: str) -> bool:
        """Return whether a cookie holds an unexpired session that an accepted token signed."""
        until, _, signature = cookie.partition(".")
        if self._tokens is None or not self._tokens.has_signed(_make_signed_text(until), signature):
            return False
        # An accepted token has signed this text, so the server wrote it and `until` is a number.
        return int(until) > self._clock()

    def new_session(self, token: str) -> str:
        """Return the cookie value of a new session, which ends when this token is no longer accepted."""
        until = str(int(self._clock()) + SESSION_SECONDS)
        return f"{until}.{sign(_make_signed_text(until), token)}"

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        if self._tokens is None:
            return self._login(request.path)
        try:
            async with asyncio.timeout(self._form_seconds):
                content = await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout from error
        form = parse_qs(content.decode("latin-1"))
        given = form.get("token", [""])[0].strip()
        if not self._tokens.accept(f"Bearer {given}"):
            return self._login(request.path, "That token is not accepted.")
        answer = web.Response(status=303, headers={"Location": "./"})
        answer.set_cookie(
            SESSION, self.new_session(given), max_age=SESSION_SECONDS, path="/",
            secure=True, httponly=True, samesite="Lax",
        )  # fmt: skip
        return answer

    def _login(self, path: str, problem: str = "") -> web.Response:
        headers = {"WWW-Authenticate": "Bearer"}
        if self._tokens is None:
            return web.json_response({"error": "open this page through its proxy"}, status=401)
        if path != "/":
            told = "the session has ended: reload this page to log in"
            return web.json_response({"error": told}, status=401, headers=headers)
        headers["Content-Security-Policy"] = LOGIN_POLICY
        return web.Response(body=login_page(problem), status=401, content_type="text/html", headers=headers)


async def _say_healthy(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")


def _make_signed_text(until: str) -> str:
    return f"evalrun view until {until}"


def _strip_port(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise BadInputError(
            f"--trusted-proxy {text}: {error}: write an address or a block, e.g. 10.0.3.0/24"
        ) from error


def _tokens_in(file: Path) -> BearerTokens:
    tokens = BearerTokens(file=file, min_characters=MIN_TOKEN_CHARACTERS)
    # The file's group may read it, because Kubernetes mounts a Secret like this for a user other than root.
    if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
        raise BadInputError(f"--token-file {file}: others on this machine may read or change it: chmod 400 {file}")
    return tokens
