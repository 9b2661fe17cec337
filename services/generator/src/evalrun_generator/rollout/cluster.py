"""The interface of a Ray cluster. `ray_cluster` implements it with Ray, `fake_cluster` without."""

from collections.abc import Sequence
from typing import Protocol

from evalrun_generator.rollout.starts import ClusterView, Start


class ReplicaCluster(Protocol):
    """A cluster that runs replicas. Calls raise GenerationStoppedError if the cluster or its control is lost."""

    @property
    def api_key(self) -> str:
        """API key of the replicas' servers."""
        ...

    async def observe(self) -> ClusterView:
        """Return the cluster's current state."""
        ...

    async def start(self, slot: int) -> None:
        """Start a replica; return without waiting for it."""
        ...

    async def end(self, suffix: str) -> None:
        """End a replica and wait until its GPUs are free."""
        ...

    async def end_all(self) -> Sequence[Start]:
        """End every replica and their supervisor; return every start so far."""
        ...
