"""Settings of a pool."""

from dataclasses import dataclass

from evalrun_executor.api import Level
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.retries import RetryPolicy


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Rule that decides when a sandbox counts as hung."""

    seconds: float = 5.0
    """Between two looks at a sandbox that has work, and what it gets to answer."""
    failures: int = 3
    """Looks in a row without an answer."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Rules that a pool follows."""

    required_level: Level
    """Sandboxes and answers below this level are not used."""
    retries: RetryPolicy
    health: HealthPolicy
    hedging: HedgePolicy | None
    """Rule for sending a slow call to a second sandbox; None: no call is sent twice."""
