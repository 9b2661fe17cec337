"""Chooses the checkpoints that get a run now, and the old runs that are deleted. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from evalrun_api.checkpoint_listing import DIGEST_DIGITS, ListingAnswer, ListingRequest, ReadyCheckpoint
from evalrun_api.v1alpha1 import EvalScheduleSpec, EvalScheduleStatus
from evalrun_operator.schedules.run_history import is_evaluated
from evalrun_operator.schedules.runs import ScheduledRun


def make_listing_request(spec: EvalScheduleSpec, status: EvalScheduleStatus, url: str) -> ListingRequest:
    """Return the request for the Job that lists checkpoints.

    Args:
        spec: the spec of the schedule.
        status: the status, which names the evaluated checkpoints.
        url: the directory as the Job sees it.
    """
    checkpoints, evaluated = spec.checkpoints, status.evaluated
    if checkpoints.policy == "Latest":
        # The policy never goes back to an older checkpoint: that checkpoint was passed over, or evaluated, when it was
        # the newest.
        lowest = None if status.last_checkpoint is None else status.last_checkpoint.step
    else:
        # Steps up to the high-water step are done, although their digests are no longer remembered.
        lowest = None if evaluated.high_water_step is None else evaluated.high_water_step + 1
    return ListingRequest(
        url=url,
        pattern=checkpoints.pattern,
        policy=checkpoints.policy,
        limit=checkpoints.max_per_tick,
        ready_marker=checkpoints.ready_marker,
        quiet_seconds=checkpoints.quiet_seconds,
        merge=spec.merge is not None,
        base=spec.template.model.base,
        serves_adapters=spec.template.rollout is None or spec.template.rollout.engine == "vllm",
        from_step=lowest,
        known=[one.digest[:DIGEST_DIGITS] for one in evaluated.digests],
        known_steps=[one.step for one in evaluated.digests],
    )


def choose_checkpoints(
    spec: EvalScheduleSpec, status: EvalScheduleStatus, answer: ListingAnswer
) -> list[ReadyCheckpoint]:
    """Return the checkpoints to evaluate, by step. The listing may be older than the status."""
    new = [one for one in answer.ready if not is_evaluated(status.evaluated, one.step, one.digest)]
    if spec.checkpoints.policy == "EveryNew":
        return sorted(new, key=lambda one: one.step)[: spec.checkpoints.max_per_tick]
    last = status.last_checkpoint
    return [one for one in new if last is None or one.step >= last.step][-1:]


@dataclass(frozen=True)
class Afforded:
    """Checkpoints that fit into the day's budget."""

    checkpoints: list[ReadyCheckpoint]
    left_out: int
    message: str
    """Reason why some checkpoints were left out; empty if none was."""


def select_affordable(
    spec: EvalScheduleSpec, status: EvalScheduleStatus, checkpoints: Sequence[ReadyCheckpoint], used: Decimal
) -> Afforded:
    """Return the checkpoints that fit into the day's budget.

    A run is expected to take as much as the last measured run. Without a measured run a single run is started, to be
    measured.

    Args:
        spec: the spec of the schedule.
        status: the status, with the last measured run.
        checkpoints: the wanted checkpoints.
        used: GPU hours that the day has used.
    """
    if spec.budget is None or not checkpoints:
        return Afforded(list(checkpoints), 0, "")
    budget = spec.budget.gpu_hours_per_day_value
    if status.last_run_gpu_hours is None:
        if status.active or status.merges:
            return Afforded([], len(checkpoints), "the first run is still being measured")
        rest = len(checkpoints) - 1
        return Afforded(list(checkpoints[:1]), rest, "the first run is measured before others start" if rest else "")
    each = Decimal(status.last_run_gpu_hours)
    open_runs = set(status.active) - {one.run for one in status.usage if one.final}
    begun = {one.run: Decimal(one.gpu_hours) for one in status.usage}
    # An active run is expected to take as much as the last run, even if it has used less so far.
    reserved = sum((max(Decimal(0), each - begun.get(run, Decimal(0))) for run in open_runs), Decimal(0))
    # A pending merge leads to a run, whose GPU hours must be left over for it.
    reserved += each * len(status.merges)
    free = budget - used - reserved
    count = len(checkpoints) if each == 0 else max(0, int(free / each))
    taken = list(checkpoints[:count])
    left_out = len(checkpoints) - len(taken)
    if not left_out:
        return Afforded(taken, 0, "")
    if each > budget:
        advice = "more than a whole day's budget: raise budget.gpuHoursPerDay, or evaluate less"
    else:
        advice = f"and the day has used {used:.2f} (with active runs {used + reserved:.2f}) of {budget}"
    return Afforded(taken, left_out, f"the last run took {each} GPU hours, {advice}")


def select_outdated_runs(
    spec: EvalScheduleSpec, status: EvalScheduleStatus, runs: Sequence[ScheduledRun]
) -> list[ScheduledRun]:
    """Return the ended runs beyond the history limits, oldest first.

    Only runs that the status remembers are returned.
    """
    ended = [
        run for run in runs if run.complete and not run.gone and is_evaluated(status.evaluated, run.step, run.digest)
    ]
    ended.sort(key=lambda run: (run.completed or run.created, run.name), reverse=True)
    good = [run for run in ended if run.succeeded][spec.successful_runs_history_limit :]
    bad = [run for run in ended if not run.succeeded][spec.failed_runs_history_limit :]
    return [*good, *bad][::-1]
