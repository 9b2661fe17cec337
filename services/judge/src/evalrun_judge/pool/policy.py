"""Settings of a pool."""

from dataclasses import dataclass

from evalrun_executor.api import Level
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.retries import RetryPolicy


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Decides when a sandbox counts as hung."""

    seconds: float = 5.0
    """Seconds between two probes of a sandbox that has work, and seconds that it has to reply to each."""
    failures: int = 3
    """Probes in a row without a reply after which the sandbox counts as hung."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Rules that a pool follows."""

    required_level: Level
    """Sandboxes and replies below this level are not used."""
    retries: RetryPolicy
    health: HealthPolicy
    hedging: HedgePolicy | None
    """Rule for sending a slow call to a second sandbox; None: no call is sent twice."""
