"""Queries the health and progress of a replica's server."""

from typing import Protocol

import aiohttp

from evalrun_generator.endpoints.endpoint import Endpoint, HttpEndpoint, open_session
from evalrun_generator.rollout.engine import KeptPlan
from evalrun_generator.weights.weights_guard import HEADER

HEALTH_SECONDS = 5.0
SLOW = "no answer yet"
TOKEN_COUNTERS = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")


class ReplicaApi(Protocol):
    """The server of a replica."""

    @property
    def endpoint(self) -> Endpoint:
        """Endpoint that serves completions."""
        ...

    async def health(self) -> str | None:
        """Return why the server is unhealthy, or None if it is healthy."""
        ...

    async def tokens(self) -> float | None:
        """Return how many tokens the engine has generated, or None if it does not report them."""
        ...


class HttpReplicaApi:
    """A replica over HTTP."""

    def __init__(
        self, session: aiohttp.ClientSession, address: str, model: str, *, seconds: float = HEALTH_SECONDS
    ) -> None:
        """Create the client; `seconds` is the timeout of health and metrics requests."""
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._url = f"http://{address}"
        self._endpoint = HttpEndpoint(session, self._url, model)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    async def health(self) -> str | None:
        """Request /health. A timeout proves nothing: a busy machine is slow, and a hung server makes no progress."""
        status, _ = await self._get("/health")
        return None if status in ("200", SLOW) else f"/health: {status}"

    async def tokens(self) -> float | None:
        """Read the engine's counter from /metrics."""
        status, body = await self._get("/metrics")
        return parse_generated_tokens(body) if status == "200" else None

    async def _get(self, path: str) -> tuple[str, str]:
        """Return the status or the error, and the body."""
        try:
            async with self._session.get(self._url + path, timeout=self._timeout) as response:
                return str(response.status), await response.text()
        except TimeoutError:
            return SLOW, ""
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}", ""


def parse_generated_tokens(metrics: str) -> float | None:
    """Parse the sum of the engine's token counter from Prometheus text, or return None if it is absent. Pure."""
    found = [
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith(tuple(f"{name}{end}" for name in TOKEN_COUNTERS for end in "{ "))
    ]
    return sum(found) if found else None


def open_replica_session(api_key: str, kept: KeptPlan | None = None) -> aiohttp.ClientSession:
    """Open the session for all replicas. Each request to kept replicas names the weights that it is meant for."""
    return open_session(api_key, {} if kept is None else {HEADER: kept.weights})
