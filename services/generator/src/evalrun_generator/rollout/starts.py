"""One start of one replica, as the supervisor in the cluster and the driver outside it both know it. Plain data."""

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """How far a start has come."""

    STARTING = "starting"
    SERVING = "serving"
    """Its HTTP server is up; whether it answers is for the driver to see."""
    FAILED = "failed"
    """It ended by itself while starting; `error` says why."""
    ENDED = "ended"
    """Its GPUs are free again."""


@dataclass(frozen=True, slots=True)
class Start:
    """A replica from the moment it was asked for to the release of its GPUs."""

    slot: int
    """verl's replica rank; one living start a slot."""
    suffix: str
    """Unique in the Ray cluster: verl's names of actors and placement groups end with it."""
    gpus: int
    started_at: float
    """Unix seconds."""
    phase: Phase = Phase.STARTING
    placed: bool = False
    """Its GPUs are reserved: they no longer count as free."""
    address: str = ""
    """host:port of its HTTP server."""
    load_format: str = ""
    """As the engine says after loading; empty where it does not say."""
    error: str = ""
    released_at: float = 0.0

    @property
    def name(self) -> str:
        """What the replica is called in results: that of its slot, whichever start it is."""
        return f"replica-{self.slot}"

    @property
    def living(self) -> bool:
        """Whether it holds or is about to hold GPUs."""
        return self.phase is not Phase.ENDED


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What one living node of the Ray cluster has free."""

    node: str
    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What there is now."""

    starts: tuple[Start, ...]
    rooms: tuple[NodeRoom, ...]
