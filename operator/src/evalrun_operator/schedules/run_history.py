"""Facts about its runs that a schedule keeps after their deletion: evaluated checkpoints, the last good one. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from evalrun_api.v1alpha1 import (
    MAX_EVALUATED,
    Checkpoint,
    EvalScheduleStatus,
    Evaluated,
    EvaluatedDigest,
    GoodCheckpoint,
    LatestResult,
    RunUsage,
)
from evalrun_operator.schedules.cron import Cron
from evalrun_operator.schedules.runs import ScheduledRun

MAX_ACTIVE = 64
MAX_USAGE = 64


def remembered(evaluated: Evaluated, checkpoints: Iterable[tuple[int, str]]) -> Evaluated:
    """Return what has been evaluated with some more checkpoints, each a step and a digest.

    Beyond `MAX_EVALUATED` the lowest steps are let go; the high-water step says of them that they are done.
    """
    known = {one.digest: one.step for one in evaluated.digests}
    high = evaluated.high_water_step
    known |= {digest: step for step, digest in checkpoints if high is None or step > high}
    kept = sorted(known.items(), key=lambda item: (item[1], item[0]))
    dropped = kept[: max(0, len(kept) - MAX_EVALUATED)]
    if dropped:
        high = max(step for _, step in dropped)
    digests = [EvaluatedDigest(digest=digest, step=step) for digest, step in kept[len(dropped) :]]
    return Evaluated(high_water_step=high, digests=digests)


def is_evaluated(evaluated: Evaluated, step: int, digest: str) -> bool:
    """Return whether a checkpoint has got its run."""
    if evaluated.high_water_step is not None and step <= evaluated.high_water_step:
        return True
    return any(one.digest == digest for one in evaluated.digests)


def newest(before: Checkpoint | None, step: int, url: str, digest: str) -> Checkpoint:
    """Return the newer of two checkpoints, by step; of a rewritten one the later."""
    if before is not None and before.step > step:
        return before
    return Checkpoint(url=url, step=step, digest=digest)


def taken_over(
    status: EvalScheduleStatus, runs: Sequence[ScheduledRun], cron: Cron, now: datetime
) -> EvalScheduleStatus:
    """Return the status with what can be learnt from the runs. Learning the same twice changes nothing."""
    runs = sorted(runs, key=lambda run: (run.created, run.name))
    last = status.last_checkpoint
    for run in runs:
        last = newest(last, run.step, run.url, run.digest)
    return status.model_copy(
        update={
            "evaluated": remembered(status.evaluated, ((run.step, run.digest) for run in runs)),
            "last_checkpoint": last,
            "active": sorted(run.name for run in runs if not run.complete and not run.gone)[:MAX_ACTIVE],
            "last_good": _last_good(status.last_good, runs),
            "latest_result": _latest_result(status.latest_result, runs),
            "usage": _usage(status.usage, runs, cron, now),
            "last_run_gpu_hours": _last_measured(runs, now) or status.last_run_gpu_hours,
        }
    )


def used_today(status: EvalScheduleStatus, cron: Cron, now: datetime) -> Decimal:
    """Return the GPU hours that the runs started today have used so far."""
    today = cron.day_of(now)
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


def _latest_result(before: LatestResult | None, runs: Iterable[ScheduledRun]) -> LatestResult | None:
    for run in runs:
        if run.succeeded and (before is None or run.step >= before.step):
            before = LatestResult(run=run.name, step=run.step, gate=run.gate, datasets=list(run.datasets))
    return before


def _usage(before: Iterable[RunUsage], runs: Iterable[ScheduledRun], cron: Cron, now: datetime) -> list[RunUsage]:
    """Return the GPU hours of the runs of today and yesterday; a run's figure grows until its GPUs are let go.

    Beyond `MAX_USAGE` the runs that have been deleted are kept as one sum a day, so that the budget counts them all.
    """
    runs = list(runs)
    days = {cron.day_of(now), cron.day_of(now - timedelta(days=1))}
    known = {one.run: one for one in before}
    for run in runs:
        if run.started is not None:
            hours = f"{run.gpu_hours(now):.2f}"
            final = run.released is not None
            if final or not run.gone:
                known[run.name] = RunUsage(run=run.name, day=cron.day_of(run.started), gpu_hours=hours, final=final)
    kept = [one for one in known.values() if one.day in days]
    if len(kept) > MAX_USAGE:
        names = {run.name for run in runs}
        sums = [_sum(day, [one for one in kept if one.day == day and one.run not in names]) for day in sorted(days)]
        kept = [*sums, *(one for one in kept if one.run in names)]
    return sorted(kept, key=lambda one: (one.day, one.run))[-MAX_USAGE:]


def _sum(day: str, usage: Iterable[RunUsage]) -> RunUsage:
    hours = sum((Decimal(one.gpu_hours) for one in usage), Decimal(0))
    return RunUsage(run=f"deleted runs of {day}", day=day, gpu_hours=f"{hours:.2f}", final=True)


def _last_measured(runs: Iterable[ScheduledRun], now: datetime) -> str | None:
    measured = [run for run in runs if run.released is not None and run.started is not None]
    if not measured:
        return None
    last = max(measured, key=lambda run: (run.released or now, run.name))
    return f"{last.gpu_hours(now):.2f}"
