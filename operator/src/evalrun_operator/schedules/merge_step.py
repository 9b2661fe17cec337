"""Chooses the checkpoint that is merged next, and reads the result of the last merge. Pure.

Only one merge Job exists at a time: the Job prunes the cache, and must know every model there that a run still needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from evalrun_api import names
from evalrun_api.checkpoint_listing import DIGEST_DIGITS, ReadyCheckpoint
from evalrun_api.v1alpha1 import MAX_MERGES, EvalScheduleSpec, EvalScheduleStatus, Evaluated, OpenStart, PendingMerge
from evalrun_api.v1alpha1 import ScheduleReason as Why
from evalrun_operator.policies.condition_text import ScheduleText
from evalrun_operator.schedules.job_state import ListingJob
from evalrun_operator.schedules.runs import ScheduledRun
from evalrun_runtime.backoff import backoff_seconds

POLL_SECONDS = 10.0
"""Seconds between two checks of a merge Job, which takes minutes."""
MAX_FAILURES = 3
"""Maximum number of attempts at a checkpoint in a row; the next start tries again."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 60.0, 900.0
REFUSED_SECONDS = 60.0
DONE = ScheduleText("True", Why.ALL_MERGED, "")


@dataclass(frozen=True)
class MergeStep:
    """The decision of a reconciliation about pending merges."""

    merges: list[PendingMerge]
    evaluated: Evaluated
    make: PendingMerge | None = None
    """Merge that gets its Job now."""
    delete: ListingJob | None = None
    merged: tuple[PendingMerge, ...] = ()
    """Merges that get their run now."""
    said: ScheduleText | None = None
    """New text of condition Merged; None: the condition keeps its text."""
    warning: str = ""
    delay: float | None = None


def merge_job_name(schedule: str, uid: str, digest: str) -> str:
    """Return the name of the Job that merges a checkpoint. The API server refuses to create it twice."""
    return f"{schedule}-{uid[: names.UID_DIGITS]}-merge-{digest[:DIGEST_DIGITS]}"


def find_waiting_merge(status: EvalScheduleStatus) -> PendingMerge | None:
    """Return the merge whose Job is observed: the oldest unfinished merge."""
    return next((one for one in status.merges if not one.merged), None)


def add_merges(
    merges: Sequence[PendingMerge], chosen: Sequence[ReadyCheckpoint], start: OpenStart, parents: Sequence[str | None]
) -> list[PendingMerge]:
    """Return the pending merges plus a merge for each chosen checkpoint that needs merging."""
    new = [
        PendingMerge(
            path=one.path,
            step=one.step,
            digest=one.digest,
            start=start.time,
            trigger=start.trigger,
            parent=parent,
            adapter=one.adapter,
        )
        for one, parent in zip(chosen, parents, strict=True)
        if one.merge
    ]
    known = {one.digest for one in merges}
    return [*merges, *(one for one in new if one.digest not in known)]


def select_fitting_checkpoints(status: EvalScheduleStatus, chosen: Sequence[ReadyCheckpoint]) -> list[ReadyCheckpoint]:
    """Return the checkpoints whose merges fit into the status. A later listing finds the others again."""
    free = MAX_MERGES - len(status.merges)
    kept = []
    for one in chosen:
        free -= one.merge
        if not one.merge or free >= 0:
            kept.append(one)
    return kept


def keep_refused_merges(
    merges: Sequence[PendingMerge], refused: Sequence[PendingMerge], now: datetime
) -> list[PendingMerge]:
    """Return the merges with those whose runs were refused. Their models exist, and their runs are tried again."""
    again = now + timedelta(seconds=REFUSED_SECONDS)
    return [*(one.model_copy(update={"merged": True, "next_time": again}) for one in refused), *merges]


def forget_checkpoint(evaluated: Evaluated, digest: str) -> Evaluated:
    """Return the evaluated checkpoints without this checkpoint, so that a later start evaluates it again."""
    kept = [one for one in evaluated.digests if one.digest != digest]
    return evaluated.model_copy(update={"digests": kept})


def merge_step(spec: EvalScheduleSpec, status: EvalScheduleStatus, job: ListingJob | None, now: datetime) -> MergeStep:
    """Decide the next action for a schedule's merges.

    Args:
        spec: the spec of the schedule.
        status: the status, with its merges in the order of their steps.
        job: the Job of `find_waiting_merge`; None if it does not exist.
        now: the time.
    """
    merges, evaluated = list(status.merges), status.evaluated
    # The spec no longer merges: the checkpoints are listed again without a merge.
    if spec.merge is None:
        for given_up in merges:
            evaluated = forget_checkpoint(evaluated, given_up.digest)
        return MergeStep([], evaluated, delete=job, said=DONE)
    due = tuple(done for done in merges if done.merged and (done.next_time is None or done.next_time <= now))
    merges = [other for other in merges if other not in due]
    one = find_waiting_merge(status)
    if one is None:
        waits = [(other.next_time - now).total_seconds() for other in merges if other.next_time is not None]
        return MergeStep(merges, evaluated, merged=due, delay=min(waits, default=None))
    place = merges.index(one)
    where = f"{one.path} (step {one.step})"
    if job is None:
        if one.next_time is not None and now < one.next_time:
            return MergeStep(merges, evaluated, merged=due, delay=(one.next_time - now).total_seconds())
        said = ScheduleText("Unknown", Why.MERGING, f"{where} is merged")
        if not due:
            merges[place] = one.model_copy(update={"next_time": None})
        # The Job prunes the cache, so it must know every model whose run is not created yet. Those runs come first.
        return MergeStep(
            merges, evaluated, make=None if due else one, merged=due, said=said, delay=0.0 if due else POLL_SECONDS
        )
    if job.state == "Running":
        said = ScheduleText("Unknown", Why.MERGING, f"Job {job.name} merges {where}. {job.message}".strip())
        return MergeStep(merges, evaluated, merged=due, said=said, delay=POLL_SECONDS)
    if job.state == "Succeeded":
        rest = [*merges[:place], *merges[place + 1 :]]
        left = None if rest else DONE
        return MergeStep(rest, evaluated, delete=job, merged=(*due, one), said=left, delay=0.0 if rest else None)
    # The failure was counted before, and only the Job's deletion was lost.
    if one.next_time is not None:
        return MergeStep(merges, evaluated, delete=job, merged=due, delay=1.0)
    failures = one.failures + 1
    text = f"{where} cannot be merged ({failures} times in a row): {job.message or 'its Job left no message'}"[:1500]
    said = ScheduleText("False", Why.MERGE_FAILED, text)
    warning = text if failures in {1, MAX_FAILURES} else ""
    if failures == MAX_FAILURES:
        rest = [*merges[:place], *merges[place + 1 :]]
        return MergeStep(
            rest,
            forget_checkpoint(evaluated, one.digest),
            delete=job,
            merged=due,
            said=said,
            warning=warning,
            delay=0.0,
        )
    wait = backoff_seconds(failures, FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS)
    merges[place] = one.model_copy(update={"failures": failures, "next_time": now + timedelta(seconds=wait)})
    return MergeStep(merges, evaluated, delete=job, merged=due, said=said, warning=warning, delay=wait)


def list_protected_digests(status: EvalScheduleStatus, runs: Sequence[ScheduledRun]) -> list[str]:
    """Return the digests whose models must stay in the cache: those of active runs and of merges."""
    digests = {run.digest for run in runs if not run.complete and not run.gone}
    digests |= {one.digest for one in status.merges}
    return sorted(digest[:DIGEST_DIGITS] for digest in digests)


def make_model_url(spec: EvalScheduleSpec, schedule: str, uid: str, one: PendingMerge) -> str:
    """Return the URL of a merged model."""
    return f"{cache_directory(spec, schedule, uid)}/{make_directory_name(one)}"


def cache_directory(spec: EvalScheduleSpec, schedule: str, uid: str) -> str:
    """Return the schedule's own directory in the cache, so that schedules do not prune each other's models."""
    cache = "" if spec.merge is None else spec.merge.cache.rstrip("/")
    return f"{cache}/{schedule}-{uid[: names.UID_DIGITS]}"


def make_directory_name(one: PendingMerge) -> str:
    """Return the directory of a merged model inside the schedule's own directory."""
    return f"step-{one.step}-{one.digest[:DIGEST_DIGITS]}"
