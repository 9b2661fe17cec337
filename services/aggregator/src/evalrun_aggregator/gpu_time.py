"""Computes how long GPUs were held, from the workers' reports about their replicas. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from evalrun_proto.ledger.v1 import ledger_pb2

_BETWEEN: Final = "\t"
"""Separates the parts of a holder's name. The ledger stores the seconds by that name."""


def held_seconds(
    worker: str, replicas: Iterable[ledger_pb2.Replica], gpu_seconds: float, reported_at: float
) -> dict[str, float]:
    """Return the GPU seconds of a report by holder: each replica counts from its start to its release.

    A holder is a start of a replica, or the worker itself for seconds that it counted on its own. A later report of the
    same holder replaces an earlier, smaller number.

    Args:
        worker: the worker that reports.
        replicas: the reported replicas; those without GPUs or without a start hold nothing.
        gpu_seconds: seconds that the worker counted beside its replicas.
        reported_at: Unix seconds of the worker's clock; replicas that still hold GPUs are counted up to then.
    """
    held = {worker: max(0.0, gpu_seconds)}
    for replica in replicas:
        if replica.gpus and replica.started_at > 0:
            end = replica.released_at or reported_at
            name = _BETWEEN.join((worker, replica.name, repr(replica.started_at)))
            held[name] = replica.gpus * max(0.0, end - replica.started_at)
    return held


def merge_seconds(known: Mapping[str, float], report: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of every holder after a report. They never decrease, even if reports arrive out of order."""
    return {**known, **{holder: max(seconds, known.get(holder, 0.0)) for holder, seconds in report.items()}}
