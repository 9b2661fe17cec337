"""Discovers sandboxes that are not known at the start: by DNS or from stdin. For Kubernetes, see `endpoint_slices`.

The name of a headless Service resolves to the address of each ready pod. A lookup that fails changes nothing: calls
reveal which pods are gone, and an outage of DNS must not remove sandboxes that work.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urlsplit

from evalrun_judge.sandboxes import Sandbox
from evalrun_runtime.late_arguments import ON_STDIN, next_line

REFRESH_SECONDS = 5.0
"""Time between two lookups. CoreDNS keeps a Service's records for 5 s by default."""
LOOKUP_SECONDS = 5.0
"""Time that DNS has to reply. The system's resolver takes 10 s and more before it gives up."""


class DiscoveryError(Exception):
    """The addresses cannot be determined now. The last known addresses stay valid."""


class NoDnsError(DiscoveryError):
    """DNS does not reply. A reply without an address is a plain DiscoveryError."""


class SandboxDiscovery(Protocol):
    """Interface to a source of sandbox addresses."""

    server_name: str
    """Host name of the Service, which the certificate of each sandbox must name."""

    async def find(self) -> frozenset[str]:
        """Return the URL of every sandbox. Raises DiscoveryError."""
        ...

    async def wait(self) -> None:
        """Wait until the next lookup is worth making, a few seconds at most."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


Connect = Callable[[str, str], Sandbox]
"""Creates the client of a sandbox from its URL and server name."""

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a name and a port to addresses. Raises OSError."""


async def system_lookup(host: str, port: int) -> list[str]:
    """Resolve a name by the system's resolver, in a thread."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class DnsDiscovery:
    """`dns:///host:port`: looks up the addresses of a name every few seconds."""

    def __init__(
        self,
        target: str,
        *,
        lookup: Lookup = system_lookup,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        refresh_seconds: float = REFRESH_SECONDS,
        lookup_seconds: float = LOOKUP_SECONDS,
        scheme: str = "http",
    ) -> None:
        """Create the discovery.

        Args:
            target: `dns:///host:port`.
            lookup: asks the resolver.
            sleep: waits for a number of seconds.
            refresh_seconds: seconds between two lookups.
            lookup_seconds: seconds that DNS has to reply.
            scheme: scheme of the URLs, http or https.

        Raises:
            ValueError: the target is not of that form.
        """
        self._host, self._port = host_and_port(target)
        self.server_name, self._scheme = self._host, scheme
        self._lookup, self._sleep, self._refresh_seconds = lookup, sleep, refresh_seconds
        self._lookup_seconds = lookup_seconds
        self._pending: asyncio.Future[list[str]] | None = None

    async def find(self) -> frozenset[str]:
        """Return the URL of every address; see `SandboxDiscovery.find`."""
        target = f"dns:///{self._host}:{self._port}"
        # One lookup at a time: the resolver's thread cannot be cancelled, and one thread per try would fill the pool.
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._lookup(self._host, self._port))
        done, _ = await asyncio.wait({self._pending}, timeout=self._lookup_seconds)
        if not done:
            raise NoDnsError(f"{target}: DNS has not answered within {self._lookup_seconds:g} s")
        lookup, self._pending = self._pending, None
        try:
            addresses = lookup.result()
        except OSError as error:
            # The resolver reports a missing reply as EAI_AGAIN, and a name without an address by another number.
            # gaierror is an OSError.
            kind = NoDnsError if error.errno == socket.EAI_AGAIN else DiscoveryError
            raise kind(f"{target}: {error}") from error
        if not addresses:
            raise DiscoveryError(f"{target}: the name has no address")
        # A dual-stack Service's name resolves to each pod twice. Counted twice, a pod would have twice its slots.
        of_one_family = [address for address in addresses if ":" not in address] or addresses
        return frozenset(http_url(address, self._port, self._scheme) for address in of_one_family)

    async def wait(self) -> None:
        """Wait for the next lookup; see `SandboxDiscovery.wait`."""
        await self._sleep(self._refresh_seconds)

    async def close(self) -> None:
        """Stop waiting for the resolver."""
        if self._pending is not None:
            self._pending.cancel()


class StdinDiscovery:
    """`stdin:`: the parent process writes the sandbox's URL to stdin as soon as the URL is known.

    Lets the gateway start beside its sandbox instead of after it.

    Args:
        read_line: returns the next line of stdin, empty at its end.
        sleep: waits for a number of seconds.
        scheme: scheme that the URL must have, http or https: no plain text where the gateway is to use TLS.
    """

    def __init__(
        self,
        read_line: Callable[[], Awaitable[str]] = next_line,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        scheme: str = "http",
    ) -> None:
        self.server_name = ""
        self._read_line, self._sleep, self._scheme = read_line, sleep, scheme
        self._url: str | None = None

    async def find(self) -> frozenset[str]:
        """Return the URL from stdin; see `SandboxDiscovery.find`."""
        if self._url is None:
            self._url = await self._read_line()
        if not self._url.startswith(f"{self._scheme}://"):
            raise DiscoveryError(f"{ON_STDIN} a line {self._scheme}://host:port was expected, not {self._url!r}")
        self.server_name = urlsplit(self._url).hostname or ""
        return frozenset({self._url})

    async def wait(self) -> None:
        """Wait; see `SandboxDiscovery.wait`."""
        await self._sleep(REFRESH_SECONDS)

    async def close(self) -> None:
        """Do nothing: stdin holds no connection."""


def host_and_port(target: str) -> tuple[str, int]:
    """Read `dns:///host:port`. Raises ValueError."""
    parts = urlsplit("//" + target.removeprefix("dns://").lstrip("/"))
    if not target.startswith("dns://") or not parts.hostname or parts.port is None or parts.path:
        raise ValueError(f"{target!r} names no host and port; write dns:///host:port")
    return parts.hostname, parts.port


def http_url(address: str, port: int, scheme: str = "http") -> str:
    """Return the URL of an IPv4 or IPv6 address."""
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def parse_service(target: str) -> tuple[str, str, str]:
    """Read `k8s:///namespace/service:port` into its three parts; the port is a number or a name. Raises ValueError."""
    namespace, _, service = target.removeprefix("k8s:///").partition("/")
    name, _, port = service.partition(":")
    if not target.startswith("k8s:///") or not namespace or not name or not port or "/" in port:
        raise ValueError(f"{target!r} names no Service; write k8s:///namespace/service:port")
    return namespace, name, port
