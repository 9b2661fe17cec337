"""What is asked of a replica's server besides completions: how it is, and how far it has come."""

from typing import Protocol

import aiohttp

from evalrun_generator.endpoints import Endpoint, HttpEndpoint, open_session

HEALTH_SECONDS = 5.0
SLOW = "no answer yet"
TOKEN_COUNTERS = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")


class ReplicaApi(Protocol):
    """One replica's server."""

    @property
    def endpoint(self) -> Endpoint:
        """Where completions are asked for."""
        ...

    async def health(self) -> str | None:
        """Give why it is not well; None where it is."""
        ...

    async def tokens(self) -> float | None:
        """Give how many tokens the engine has generated; None where it does not say."""
        ...


class HttpReplicaApi:
    """A replica over HTTP."""

    def __init__(
        self, session: aiohttp.ClientSession, address: str, model: str, *, seconds: float = HEALTH_SECONDS
    ) -> None:
        """`seconds`: how long health and metrics may take."""
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._url = f"http://{address}"
        self._endpoint = HttpEndpoint(session, self._url, model)

    @property
    def endpoint(self) -> Endpoint:
        """Where completions are asked for."""
        return self._endpoint

    async def health(self) -> str | None:
        """Ask /health. No answer in time says nothing: a busy machine is slow, and a hung server makes no progress."""
        status, _ = await self._get("/health")
        return None if status in ("200", SLOW) else f"/health: {status}"

    async def tokens(self) -> float | None:
        """Read the engine's counter from /metrics."""
        status, body = await self._get("/metrics")
        return generated_tokens(body) if status == "200" else None

    async def _get(self, path: str) -> tuple[str, str]:
        """Give the status, or what went wrong, and the body."""
        try:
            async with self._session.get(self._url + path, timeout=self._timeout) as response:
                return str(response.status), await response.text()
        except TimeoutError:
            return SLOW, ""
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}", ""


def generated_tokens(metrics: str) -> float | None:
    """Read the sum of the engine's token counter from Prometheus' text format; None where it is not there. Pure."""
    found = [
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith(tuple(f"{name}{end}" for name in TOKEN_COUNTERS for end in "{ "))
    ]
    return sum(found) if found else None


def open_replica_session(api_key: str) -> aiohttp.ClientSession:
    """Open the session for all replicas."""
    return open_session(api_key)
