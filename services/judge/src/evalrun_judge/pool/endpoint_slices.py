"""Discovery of sandboxes by a Service's EndpointSlices, read from the Kubernetes API server.

The module sends two plain requests instead of using a client library: list the slices, watch until any of them changes,
and list again. The pod's service account needs `get`, `list` and `watch` on endpointslices.discovery.k8s.io in the
Service's namespace.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
import msgspec

from evalrun_judge.pool.discovery import REFRESH_SECONDS, DiscoveryError, http_url, parse_service
from evalrun_runtime.connections.cluster_authority import accept_cluster_authority

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory of a pod's own credentials in Kubernetes."""

WATCH_SECONDS = 60
ANSWER_SECONDS = 10.0


class _Conditions(msgspec.Struct):
    ready: bool | None = None


class _Endpoint(msgspec.Struct):
    addresses: list[str]
    conditions: _Conditions = msgspec.field(default_factory=_Conditions)


class _Port(msgspec.Struct):
    name: str | None = None
    port: int | None = None


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - Kubernetes' name


class _Slice(msgspec.Struct):
    addressType: str = "IPv4"  # noqa: N815 - likewise
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _SliceList(msgspec.Struct):
    items: list[_Slice]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Address and credentials of the API server."""

    url: str
    token_file: Path
    """Read for each request, because Kubernetes replaces the token every hour."""
    authority: Path | None = None
    """Certificates by which the API server is trusted; None for plain HTTP."""

    @classmethod
    def from_pod(cls, environment: Mapping[str, str]) -> Self:
        """Return the API server of the cluster in which this pod runs. Raises ValueError outside a cluster."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise ValueError("k8s:/// works in a pod only (KUBERNETES_SERVICE_HOST is not set); write dns:///host:port")
        return cls(http_url(host, int(port), "https"), ACCOUNT / "token", ACCOUNT / "ca.crt")


class EndpointSliceDiscovery:
    """`k8s:///namespace/service:port`: finds the ready pods of a Service."""

    def __init__(self, target: str, server: ApiServer, *, scheme: str = "http") -> None:
        """Create the client; connections open with the first request.

        Args:
            target: `k8s:///namespace/service:port`.
            server: the API server to ask.
            scheme: scheme of the URLs, http or https.

        Raises:
            ValueError: the target is not of that form.
        """
        self._target = target
        self._namespace, self._service, self._port = parse_service(target)
        self.server_name, self._scheme = f"{self._service}.{self._namespace}.svc", scheme
        self._server = server
        self._version = ""
        self._session: aiohttp.ClientSession | None = None
        self._decoder = msgspec.json.Decoder(_SliceList)

    async def find(self) -> frozenset[str]:
        """Return the URL of every ready pod; see `SandboxDiscovery.find`."""
        self._version = ""
        try:
            async with self._get({}, ANSWER_SECONDS) as response:
                body = await response.read()
                if response.status != 200:
                    raise DiscoveryError(f"{self._target}: the API server gave status {response.status}: {_said(body)}")
            found = self._decoder.decode(body)
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            raise DiscoveryError(f"{self._target}: {error or type(error).__name__}") from error
        self._version = found.metadata.resourceVersion
        families: dict[str, set[str]] = {}
        for one in found.items:
            families.setdefault(one.addressType, set()).update(self._urls(one))
        # A dual-stack Service has the same pods in the slices of both families. Counted in both, a pod would have twice
        # its slots, so the first family that has addresses is used alone.
        return frozenset(next((urls for _, urls in sorted(families.items()) if urls), ()))

    async def wait(self) -> None:
        """Wait for an event; see `SandboxDiscovery.wait`.

        Without a connection, wait as long as between two DNS lookups.
        """
        if self._version:
            watch = {"watch": "1", "resourceVersion": self._version, "timeoutSeconds": str(WATCH_SECONDS)}
            try:
                async with self._get(watch, WATCH_SECONDS + ANSWER_SECONDS) as response:
                    if response.status == 200:
                        # Either the first event or the end of the watch is a reason to list again.
                        await response.content.readany()
                        return
            except (aiohttp.ClientError, OSError):
                # The next `find` reports what is wrong.
                pass
        await asyncio.sleep(REFRESH_SECONDS)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _urls(self, one: _Slice) -> list[str]:
        ports = [p.port for p in one.ports or () if p.port and self._port in (p.name, str(p.port))]
        ready = [endpoint for endpoint in one.endpoints or () if endpoint.conditions.ready is not False]
        addresses = [address for endpoint in ready for address in endpoint.addresses]
        return [http_url(address, port, self._scheme) for address in addresses for port in ports]

    def _get(self, query: Mapping[str, str], seconds: float) -> "aiohttp.client._RequestContextManager":
        if self._session is None:
            trusted = self._server.authority
            context = None
            if trusted is not None:
                context = accept_cluster_authority(ssl.create_default_context(cafile=trusted))
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or True))
        return self._session.get(
            f"{self._server.url}/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices",
            params={"labelSelector": f"kubernetes.io/service-name={self._service}", **query},
            headers={"Authorization": f"Bearer {self._server.token_file.read_text().strip()}"},
            timeout=aiohttp.ClientTimeout(total=seconds),
        )


def _said(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace").replace("\n", " ")
