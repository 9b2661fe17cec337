"""Keeps the workers' reports about their replicas. Pure: the time is an argument."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evalrun_aggregator.gpu_time import merge_seconds
from evalrun_proto.ledger.v1 import ledger_pb2

SILENT_SECONDS = 60.0
"""Seconds of silence after which a worker counts as gone; generators report every few seconds."""


@dataclass(frozen=True)
class KnownReplica:
    """A replica as its worker last reported it."""

    replica: ledger_pb2.Replica
    reported_at: float
    """Seconds of the clock that `ReplicaRegistry`'s callers use."""


class ReplicaRegistry:
    """The replicas of all workers, numbered in the order in which they were first reported."""

    def __init__(self, gpu_seconds: Mapping[str, float] | None = None) -> None:
        """`gpu_seconds`: by holder (`gpu_time.held_seconds`), as the ledger knew them."""
        self._known: dict[tuple[str, str], KnownReplica] = {}
        self._gpu_seconds = dict(gpu_seconds or {})
        self._warnings: dict[str, list[str]] = {}

    def report(
        self,
        worker: str,
        replicas: Iterable[ledger_pb2.Replica],
        gpu_seconds: Mapping[str, float],
        now: float,
        warnings: Iterable[str] = (),
    ) -> None:
        """Store a worker's report. Replicas that the worker no longer names are down. `gpu_seconds`: by holder."""
        self._warnings[worker] = list(warnings)
        named = {replica.name: replica for replica in replicas}
        for (owner, name), known in self._known.items():
            if owner == worker and name not in named:
                gone = ledger_pb2.Replica()
                gone.CopyFrom(known.replica)
                gone.up, gone.in_flight = False, 0
                self._known[owner, name] = KnownReplica(gone, now)
        for name, replica in named.items():
            self._known[worker, name] = KnownReplica(replica, now)
        self._gpu_seconds = merge_seconds(self._gpu_seconds, gpu_seconds)

    @property
    def warnings(self) -> list[str]:
        """Latest warnings of the workers, each text once."""
        return list(dict.fromkeys(line for lines in self._warnings.values() for line in lines))

    @property
    def gpu_seconds(self) -> float:
        """GPU seconds of all replicas, from each start to its release or to the last report."""
        return sum(self._gpu_seconds.values())

    def trouble(self, now: float) -> str | None:
        """Return why no replica replies; None if a replica does, or if no failure was reported."""
        heard = [known.replica for known in self._known.values() if now - known.reported_at <= SILENT_SECONDS]
        failing = [replica for replica in heard if replica.error]
        if not failing or any(replica.up for replica in heard):
            return None
        first = failing[0]
        others = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        return f"{first.address or first.name}: {first.error}{others}"

    def list_replicas(self, now: float) -> list[ledger_pb2.Replica]:
        """Return the replicas in order of number; those of a silent worker are down."""
        found = []
        for known in self._known.values():
            replica = ledger_pb2.Replica()
            replica.CopyFrom(known.replica)
            if now - known.reported_at > SILENT_SECONDS:
                replica.up, replica.in_flight = False, 0
            found.append(replica)
        return found
