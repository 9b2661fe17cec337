"""A start of a replica, as plain data shared by the supervisor in the cluster and the driver outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class StartPhase(Enum):
    STARTING = "starting"
    SERVING = "serving"
    """The HTTP server is up, and the driver checks whether it replies."""
    FAILED = "failed"
    """The start failed; `error` names the reason."""
    ENDED = "ended"
    """The GPUs are free again."""


@dataclass(frozen=True, slots=True)
class Start:
    """A replica from its request to the release of its GPUs."""

    slot: int
    """verl's replica rank. A slot has at most one living start."""
    suffix: str
    """Unique in the Ray cluster: verl's names of actors and placement groups end with it."""
    gpus: int
    started_at: float
    """Unix seconds."""
    phase: StartPhase = StartPhase.STARTING
    placed: bool = False
    """Whether its GPUs are reserved and no longer count as free."""
    address: str = ""
    """host:port of its HTTP server."""
    load_format: str = ""
    """As reported by the engine after loading; empty if it does not report it."""
    engine: Mapping[str, str] = field(default_factory=dict)
    """Versions, GPU, weights; see `engine_facts`."""
    error: str = ""
    released_at: float = 0.0

    @property
    def name(self) -> str:
        """The replica's name in results, which is the same for each start on its slot."""
        return f"replica-{self.slot}"

    @property
    def weights_version(self) -> str:
        """Digests of the model and the adapter that the replica serves; empty if unknown, or random."""
        if self.load_format == "dummy":
            return ""
        return "+".join(filter(None, map(self.engine.get, ("weights_sha256", "adapter_sha256"))))

    @property
    def living(self) -> bool:
        """Whether the replica holds or is about to hold GPUs."""
        return self.phase is not StartPhase.ENDED


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Free resources of a living node of the Ray cluster."""

    node: str
    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Current state of the cluster."""

    starts: tuple[Start, ...]
    rooms: tuple[NodeCapacity, ...]
