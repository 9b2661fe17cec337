"""Facts that a schedule remembers after its runs are deleted: evaluated checkpoints and the last good checkpoint.
Pure."""

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
"""Before a day, in place of a run's name: what the day's deleted runs have used."""


def remember_checkpoints(evaluated: Evaluated, checkpoints: Iterable[tuple[int, str]]) -> Evaluated:
    """Return the evaluated checkpoints with more checkpoints added, each a step and a digest.

    Beyond `MAX_EVALUATED` the lowest steps are let go; the high-water step says of them that they are done.
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
    """Return the runs that the status records: of a checkpoint that was chosen, and of the uid that was seen first.

    Owner references and annotations are written by whoever creates a run.
    """
    recorded = {one.digest: one for one in status.evaluated.digests}
    merging = {one.digest for one in status.merges}

    def is_own(run: ScheduledRun) -> bool:
        one = recorded.get(run.digest)
        if run.name != run_name(schedule, run.digest):
            return False
        if one is None:  # an active run outlives its digest, of which so many are remembered
            return run.name in status.active and run.step <= (status.evaluated.high_water_step or 0)
        # While its shards are merged, which the status tells everybody, a checkpoint has no run yet.
        unseen = one.run_uid is None and run.digest not in merging
        return one.step == run.step and (unseen or one.run_uid == run.uid)

    return tuple(run for run in runs if is_own(run))


def heal_status(schedule: EvalSchedule, status: EvalScheduleStatus) -> EvalScheduleStatus:
    """Return the status without claims that it cannot vouch for, such as results of a run that was never created.

    What decides is derived from the checkpoints that have been evaluated, so that a status which somebody has written
    to, or an earlier release was deceived about, comes right again.
    """
    name, evaluated = schedule.metadata.name, status.evaluated
    # Digests are let go only where there are too many.
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
    """Return the evaluated checkpoints without those above the newest existing step for which no run was ever seen."""
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
    """Return the status with the uids of runs that were made just now, by digest: no other run can take their place."""
    digests = [
        one.model_copy(update={"run_uid": uids[one.digest]}) if one.digest in uids else one
        for one in status.evaluated.digests
    ]
    return status.model_copy(update={"evaluated": status.evaluated.model_copy(update={"digests": digests})})


def is_evaluated(evaluated: Evaluated, step: int, digest: str) -> bool:
    """Return whether a checkpoint has got its run."""
    if evaluated.high_water_step is not None and step <= evaluated.high_water_step:
        return True
    return any(one.digest == digest for one in evaluated.digests)


def newest(before: Checkpoint | None, step: int, url: str, digest: str) -> Checkpoint:
    """Return the newer of two checkpoints, by step; of a rewritten checkpoint, the later version."""
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

    An inconclusive gate counts as not failed: a baseline that waited for certainty would stay behind forever if the
    gate's margin is small. What drifts slowly is for a fixed baseline to catch.
    """
    for run in runs:
        good = run.succeeded and run.gate != "False"
        if good and (before is None or run.step >= before.step):
            before = GoodCheckpoint(url=run.url, step=run.step, digest=run.digest, output_url=run.output_url)
    return before


def _best(before: BestCheckpoint | None, runs: Iterable[ScheduledRun]) -> BestCheckpoint | None:
    """Return the best checkpoint of a race: the first with results, then whichever passes the gate against it.

    A run that was compared with an earlier best one, since both were asked for at once, says nothing about this one.
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
    """Return the newest checkpoint with results. To lose a race is no failed gate, of which somebody is told."""
    for run in runs:
        if run.succeeded and (before is None or run.step >= before.step):
            gate = None if races else run.gate
            before = LatestResult(run=run.name, step=run.step, gate=gate, datasets=list(run.datasets))
    return before


def _gpu_hours(status: EvalScheduleStatus, run: ScheduledRun, now: datetime) -> tuple[Decimal, bool] | None:
    """Return the GPU hours of a run, and whether they are final; None where they are not known.

    A run on kept replicas held none by itself while it waited for its turn: it has what it pays of them.
    """
    if run.started is None:
        return None
    if not run.keeps_replicas:
        return run.gpu_hours(now), run.released is not None
    costs = None if status.replicas is None else status.replicas.costs
    seconds = None if costs is None else paid_gpu_seconds(costs).get(run.uid)
    return None if costs is None or seconds is None else (Decimal(seconds) / 3600, costs.settled)


def _usage(status: EvalScheduleStatus, runs: Iterable[ScheduledRun], cron: Cron, now: datetime) -> list[RunUsage]:
    """Return the GPU hours of the runs of today and yesterday; a run's figure grows until its GPUs are let go.

    Beyond `MAX_USAGE` the runs that have been deleted are kept as one sum a day, so that the budget counts them all.
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
