"""Builds the ledger's report of the replicas: every start, until its GPUs are released. Pure."""

from collections.abc import Mapping, Sequence

from evalrun_generator.endpoints.balancer import EndpointState
from evalrun_generator.rollout.starts import Start, StartPhase
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger


def replica_reports(
    starts: Sequence[Start],
    states: Mapping[str, EndpointState],
    models: Mapping[str, Sequence[str]],
    errors: Mapping[int, str],
) -> list[ledger.Replica]:
    """Return one entry per start, ordered by slot and time, so that the latest start of a slot comes last and counts.

    Args:
        starts: every start of the run.
        states: the balancer's states by replica name.
        models: what /v1/models listed, by suffix.
        errors: why the last start of a slot was ended, by slot.
    """
    reports = []
    for start in sorted(starts, key=lambda one: (one.slot, one.started_at)):
        state = states.get(start.name) if start.phase is StartPhase.SERVING else None
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
                engine=start.engine,
            )
        )
    return reports


def gpu_seconds(starts: Sequence[Start], now: float) -> float:
    """Return the GPU seconds of all starts, including loading. Starts that still hold GPUs count up to `now`."""
    return sum(start.gpus * max(0.0, (start.released_at or now) - start.started_at) for start in starts)


def current_of_slots(reports: Sequence[ledger.Replica]) -> list[ledger.Replica]:
    """Return the latest report of each slot, in order of slot."""
    return list({report.name: report for report in reports}.values())
