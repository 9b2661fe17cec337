"""The Ray cluster as the driver sees it. `ray_cluster` has the real one, `fake_cluster` one without Ray."""

from collections.abc import Sequence
from typing import Protocol

from evalrun_generator.rollout.starts import ClusterView, Start


class Cluster(Protocol):
    """Where replicas are started. Calls raise GenerationStoppedError where the cluster or the right to it is lost."""

    @property
    def api_key(self) -> str:
        """What the replicas' servers ask for."""
        ...

    async def observe(self) -> ClusterView:
        """Give what there is now."""
        ...

    async def start(self, slot: int) -> None:
        """Start a replica; returns at once."""
        ...

    async def end(self, suffix: str) -> None:
        """End a replica; returns when its GPUs are free."""
        ...

    async def end_all(self) -> Sequence[Start]:
        """End every replica and what keeps them; gives every start there was."""
        ...
