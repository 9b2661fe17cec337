"""Facts that a schedule remembers after its runs are deleted, such as the evaluated checkpoints. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from evalrun_api.v1alpha1 import (
    MAX_EVALUATED,
    MAX_MERGES,
    MAX_RIVALS,
    BestCheckpoint,
    Checkpoint,
    EvalSchedule,
    EvalScheduleStatus,
    Evaluated,
    EvaluatedDigest,
    GoodCheckpoint,
    LatestResult,
    RunUsage,
)
from evalrun_operator.schedules.cron import Cron
from evalrun_operator.schedules.kept_costs import paid_gpu_seconds
from evalrun_operator.schedules.objects import run_name
from evalrun_operator.schedules.runs import ScheduledRun

MAX_ACTIVE = 64
MAX_USAGE = 64
DELETED_RUNS = "deleted runs of "
"""Prefix of a day, in place of a run's name, in the entry with the GPU hours of all deleted runs of that day."""


def remember_checkpoints(evaluated: Evaluated, checkpoints: Iterable[tuple[int, str]]) -> Evaluated:
    """Return the evaluated checkpoints with further checkpoints, each a step and a digest.

    Beyond `MAX_EVALUATED` the lowest steps are dropped; the high-water step records that they are done.
    """
    known = {one.digest: one for one in evaluated.digests}
    high = evaluated.high_water_step
    for step, digest in checkpoints:
        if digest not in known and (high is None or step > high):
            known[digest] = EvaluatedDigest(digest=digest, step=step)
    kept = sorted(known.values(), key=lambda one: (one.step, one.digest))
    dropped = kept[: max(0, len(kept) - MAX_EVALUATED)]
    if dropped:
        high = dropped[-1].step
    return Evaluated(high_water_step=high, digests=kept[len(dropped) :])


def select_own_runs(
    schedule: str, status: EvalScheduleStatus, runs: Iterable[ScheduledRun]
) -> tuple[ScheduledRun, ...]:
    """Return the runs that the status records: those of chosen checkpoints, each with the uid that was seen first.

    Owner references and annotations prove nothing, because whoever creates a run writes them.
    """
    recorded = {one.digest: one for one in status.evaluated.digests}
    merging = {one.digest for one in status.merges}

    def is_own(run: ScheduledRun) -> bool:
        one = recorded.get(run.digest)
        if run.name != run_name(schedule, run.digest):
            return False
        # An active run may outlive its digest, because only `MAX_EVALUATED` digests are remembered.
        if one is None:
            return run.name in status.active and run.step <= (status.evaluated.high_water_step or 0)
        # While its shards are merged, which the status shows to everybody, a checkpoint has no run yet.
        unseen = one.run_uid is None and run.digest not in merging
        return one.step == run.step and (unseen or one.run_uid == run.uid)

    return tuple(run for run in runs if is_own(run))


def heal_status(schedule: EvalSchedule, status: EvalScheduleStatus) -> EvalScheduleStatus:
    """Return the status without claims that it cannot prove, such as results of a run that was never created.

    All claims are checked against the evaluated checkpoints, so that a status that somebody has changed, or that an
    earlier release got wrong, becomes right again.
    """
    name, evaluated = schedule.metadata.name, status.evaluated
    # Digests are dropped only if there are too many, so with fewer digests the high-water step is wrong.
    if evaluated.high_water_step is not None and len(evaluated.digests) < MAX_EVALUATED - MAX_MERGES:
        evaluated = evaluated.model_copy(update={"high_water_step": None})
    known = {(one.step, one.digest) for one in evaluated.digests}
    names = {(run_name(name, digest), step) for step, digest in known}
    high = -1 if evaluated.high_water_step is None else evaluated.high_water_step
    last, good, latest = status.last_checkpoint, status.last_good, status.latest_result
    best = None if schedule.spec.race is None else status.best

    def is_known(one: Checkpoint) -> bool:
        return one.step <= high or (one.step, one.digest) in known

    if last is None or not is_known(last):
        step, digest = max(known, default=(-1, ""))
        last = Checkpoint(url=schedule.spec.checkpoints.url, step=step, digest=digest) if digest else None
    if good is not None and not is_known(good):
        good = None
    if best is not None and not is_known(best):
        best = None
    if latest is not None and latest.step > high and (latest.run, latest.step) not in names:
        latest = None
    usage = [one for one in status.usage if one.run.startswith((f"{name}-", DELETED_RUNS))]
    return status.model_copy(
        update={
            "evaluated": evaluated, "last_checkpoint": last, "last_good": good, "best": best,
            "latest_result": latest, "usage": usage,
        }
    )  # fmt: skip


def drop_absent(evaluated: Evaluated, newest_step: int) -> Evaluated:
    """Return the evaluated checkpoints without steps above the newest existing step that never had a run."""
    kept = [one for one in evaluated.digests if one.step <= newest_step or one.run_uid is not None]
    return evaluated.model_copy(update={"digests": kept})


def add_uids(evaluated: Evaluated, runs: Iterable[ScheduledRun]) -> Evaluated:
    """Return the evaluated checkpoints with the uids of their runs added."""
    uids = {run.digest: run.uid for run in runs}
    digests = [
        one
        if one.run_uid is not None or one.digest not in uids
        else one.model_copy(update={"run_uid": uids[one.digest]})
        for one in evaluated.digests
    ]
    return evaluated.model_copy(update={"digests": digests})


def add_run_uids(status: EvalScheduleStatus, uids: Mapping[str, str]) -> EvalScheduleStatus:
    """Return the status with the uids of newly created runs, by digest. No other run can take their place."""
    digests = [
        one.model_copy(update={"run_uid": uids[one.digest]}) if one.digest in uids else one
        for one in status.evaluated.digests
    ]
    return status.model_copy(update={"evaluated": status.evaluated.model_copy(update={"digests": digests})})


def is_evaluated(evaluated: Evaluated, step: int, digest: str) -> bool:
    """Return whether a checkpoint has already got its run."""
    if evaluated.high_water_step is not None and step <= evaluated.high_water_step:
        return True
    return any(one.digest == digest for one in evaluated.digests)


def newest(before: Checkpoint | None, step: int, url: str, digest: str) -> Checkpoint:
    """Return the newer of two checkpoints by step, or the later version of a rewritten checkpoint."""
    if before is not None and before.step > step:
        return before
    return Checkpoint(url=url, step=step, digest=digest)


def take_over_runs(
    status: EvalScheduleStatus, runs: Sequence[ScheduledRun], cron: Cron, now: datetime, *, races: bool
) -> EvalScheduleStatus:
    """Return the status with the facts learnt from the runs. Applying the same runs twice changes nothing."""
    runs = sorted(runs, key=lambda run: (run.created, run.name))
    last = status.last_checkpoint
    for run in runs:
        last = newest(last, run.step, run.url, run.digest)
    return status.model_copy(
        update={
            "evaluated": add_uids(status.evaluated, runs),
            "last_checkpoint": last,
            "active": sorted(run.name for run in runs if not run.complete and not run.gone)[:MAX_ACTIVE],
            "last_good": _last_good(status.last_good, runs),
            "best": _best(status.best, runs) if races else None,
            "latest_result": _latest_result(status.latest_result, runs, races=races),
            "usage": _usage(status, runs, cron, now),
            "last_run_gpu_hours": _last_measured(status, runs, now) or status.last_run_gpu_hours,
        }
    )


def sum_gpu_hours_today(status: EvalScheduleStatus, cron: Cron, now: datetime) -> Decimal:
    """Return the GPU hours that the runs started today have used so far."""
    today = cron.compute_day(now)
    return sum((Decimal(one.gpu_hours) for one in status.usage if one.day == today), Decimal(0))


def _last_good(before: GoodCheckpoint | None, runs: Iterable[ScheduledRun]) -> GoodCheckpoint | None:
    """Return the newest checkpoint with results whose gate did not fail.

    An inconclusive gate counts as not failed: a baseline that waited for certainty would never move if the gate's
    margin is small. A fixed baseline catches slow drift.
    """
    for run in runs:
        good = run.succeeded and run.gate != "False"
        if good and (before is None or run.step >= before.step):
            before = GoodCheckpoint(url=run.url, step=run.step, digest=run.digest, output_url=run.output_url)
    return before


def _best(before: BestCheckpoint | None, runs: Iterable[ScheduledRun]) -> BestCheckpoint | None:
    """Return the best checkpoint of a race: the first with results, then each that passes the gate against the best.

    Two runs may start at once against the same best checkpoint. The second is then compared with a best checkpoint that
    has been replaced, so its result does not count.
    """
    for run in runs:
        if not run.succeeded or run.gate == "False" or run.stopped_early or run.output_url is None:
            continue
        if before is None or (run.raced_against == before.output_url and run.gate != "Unknown"):
            rivals = [] if before is None else before.rivals
            before = BestCheckpoint(
                url=run.url, step=run.step, digest=run.digest, output_url=run.output_url, rivals=rivals
            )
        elif run.raced_against == before.output_url and run.step not in before.rivals:
            before = before.model_copy(update={"rivals": [*before.rivals, run.step][-MAX_RIVALS:]})
    return before


def _latest_result(before: LatestResult | None, runs: Iterable[ScheduledRun], *, races: bool) -> LatestResult | None:
    """Return the newest checkpoint with results.

    A lost race does not count as a failed gate, which would raise an alert.
    """
    for run in runs:
        if run.succeeded and (before is None or run.step >= before.step):
            gate = None if races else run.gate
            before = LatestResult(run=run.name, step=run.step, gate=gate, datasets=list(run.datasets))
    return before


def _gpu_hours(status: EvalScheduleStatus, run: ScheduledRun, now: datetime) -> tuple[Decimal, bool] | None:
    """Return the GPU hours of a run, and whether they are final; None if they are unknown.

    A run on kept replicas held no GPUs itself while it waited for its turn: it pays its share of the replicas' cost.
    """
    if run.started is None:
        return None
    if not run.keeps_replicas:
        return run.gpu_hours(now), run.released is not None
    costs = None if status.replicas is None else status.replicas.costs
    seconds = None if costs is None else paid_gpu_seconds(costs).get(run.uid)
    return None if costs is None or seconds is None else (Decimal(seconds) / 3600, costs.settled)


def _usage(status: EvalScheduleStatus, runs: Iterable[ScheduledRun], cron: Cron, now: datetime) -> list[RunUsage]:
    """Return the GPU hours of the runs of today and yesterday. A run's number grows until its GPUs are released.

    Beyond `MAX_USAGE` the deleted runs are kept as a sum per day, so that the budget counts them all.
    """
    runs = list(runs)
    days = {cron.compute_day(now), cron.compute_day(now - timedelta(days=1))}
    known = {one.run: one for one in status.usage}
    for run in runs:
        found = _gpu_hours(status, run, now)
        if run.started is not None and found is not None:
            hours, final = found
            if final or not run.gone:
                day = cron.compute_day(run.started)
                known[run.name] = RunUsage(run=run.name, day=day, gpu_hours=f"{hours:.2f}", final=final)
    kept = [one for one in known.values() if one.day in days]
    if len(kept) > MAX_USAGE:
        names = {run.name for run in runs}
        sums = [_sum(day, [one for one in kept if one.day == day and one.run not in names]) for day in sorted(days)]
        kept = [*sums, *(one for one in kept if one.run in names)]
    return sorted(kept, key=lambda one: (one.day, one.run))[-MAX_USAGE:]


def _sum(day: str, usage: Iterable[RunUsage]) -> RunUsage:
    hours = sum((Decimal(one.gpu_hours) for one in usage), Decimal(0))
    return RunUsage(run=f"{DELETED_RUNS}{day}", day=day, gpu_hours=f"{hours:.2f}", final=True)


def _last_measured(status: EvalScheduleStatus, runs: Iterable[ScheduledRun], now: datetime) -> str | None:
    found = ((run, _gpu_hours(status, run, now)) for run in runs if run.released is not None)
    measured = [(run.released or now, run.name, hours[0]) for run, hours in found if hours is not None]
    return f"{max(measured)[2]:.2f}" if measured else None
