"""What the ledger is told of the replicas: every start, from its first second to the release of its GPUs. Pure."""

from collections.abc import Mapping, Sequence

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.balancer import EndpointState
from evalrun_generator.rollout.starts import Phase, Start


def replica_reports(
    starts: Sequence[Start],
    states: Mapping[str, EndpointState],
    models: Mapping[str, Sequence[str]],
    errors: Mapping[int, str],
) -> list[ledger.Replica]:
    """Give one entry a start, by slot and time, so that the latest of a slot comes last: it is the one that counts.

    Args:
        starts: every start of the run.
        states: the balancer's, by the replica's name.
        models: by suffix: what /v1/models listed.
        errors: by slot: why its last start was ended.
    """
    reports = []
    for start in sorted(starts, key=lambda one: (one.slot, one.started_at)):
        state = states.get(start.name) if start.phase is Phase.SERVING else None
        reports.append(
            ledger.Replica(
                name=start.name,
                address=start.address,
                up=state is not None and state.failing_since is None,
                in_flight=state.in_flight if state is not None else 0,
                models=models.get(start.suffix, ()),
                error=(state.last_error if state is not None else "") or start.error or errors.get(start.slot, ""),
                gpus=start.gpus,
                started_at=start.started_at,
                released_at=start.released_at,
                load_format=start.load_format,
            )
        )
    return reports


def gpu_seconds(starts: Sequence[Start], now: float) -> float:
    """Give the GPU seconds of all starts, loading included; what still holds its GPUs is counted up to `now`."""
    return sum(start.gpus * max(0.0, (start.released_at or now) - start.started_at) for start in starts)


def current_of_slots(reports: Sequence[ledger.Replica]) -> list[ledger.Replica]:
    """Give the latest report of each slot, in order of slot."""
    return list({report.name: report for report in reports}.values())
