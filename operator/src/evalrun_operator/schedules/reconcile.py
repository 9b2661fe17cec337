"""Decides a reconciliation of a schedule from the observed state and the time. Pure: the clock is an argument.

The steps of a start are: due -> (runs of an earlier start have ended) -> a Job lists -> runs are created -> done. The
step is kept in `status.start`, so that an operator that is killed continues where it was. A start whose checkpoints are
not complete yet lists again until the next start is due.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from evalrun_api import names
from evalrun_api.checkpoint_listing import ListingAnswer, ReadyCheckpoint, UnreadableAnswerError, decode_answer
from evalrun_api.v1alpha1 import (
    BestCheckpoint,
    EvalSchedule,
    EvalScheduleSpec,
    EvalScheduleStatus,
    OpenStart,
    TroubledCheckpoint,
    schedule_condition,
)
from evalrun_api.v1alpha1 import ScheduleCondition as Kind
from evalrun_api.v1alpha1 import ScheduleReason as Why
from evalrun_cluster.objects import StatusEvent
from evalrun_operator.policies.condition_text import ScheduleText
from evalrun_operator.schedules.choice import choose_checkpoints, select_affordable, select_outdated_runs
from evalrun_operator.schedules.cron import Cron, InvalidScheduleError, parse_cron
from evalrun_operator.schedules.decision import ObservedSchedule, ScheduleDecision
from evalrun_operator.schedules.job_state import ListingJob
from evalrun_operator.schedules.kept_replicas import ReplicaStep, replica_step
from evalrun_operator.schedules.merge_step import DONE, add_merges, merge_step, select_fitting_checkpoints
from evalrun_operator.schedules.objects import checkpoint_url, run_name
from evalrun_operator.schedules.refusals import FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS, fail_listing
from evalrun_operator.schedules.run_history import (
    drop_absent,
    heal_status,
    newest,
    remember_checkpoints,
    select_own_runs,
    sum_gpu_hours_today,
    take_over_runs,
)
from evalrun_operator.schedules.runs import ScheduledRun
from evalrun_operator.schedules.words import gate_words, shown_columns, update_conditions
from evalrun_runtime.backoff import backoff_seconds

NOT_KEPT = ScheduleText("Unknown", Why.NOT_KEPT, "each run starts its own")
POLL_SECONDS = 1.0
"""Seconds between two checks of a listing Job."""
MAX_WAIT_SECONDS = 3600.0
"""Longest wait before the next reconciliation: the clock may be changed meanwhile."""
MAX_TROUBLED = 16


@dataclass
class _Pass:
    """A reconciliation in progress."""

    schedule: EvalSchedule
    cron: Cron
    observed: ObservedSchedule
    now: datetime
    status: EvalScheduleStatus
    says: dict[Kind, ScheduleText] = field(default_factory=dict)
    events: list[StatusEvent] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    decision: ScheduleDecision = field(default_factory=lambda: ScheduleDecision(EvalScheduleStatus()))

    @property
    def spec(self) -> EvalScheduleSpec:
        return self.schedule.spec

    def update(self, **fields: object) -> None:
        self.status = self.status.model_copy(update=fields)

    def warn(self, reason: str, message: str) -> None:
        self.events.append(StatusEvent(True, reason, message))  # noqa: FBT003 - a warning

    def tell(self, reason: str, message: str) -> None:
        self.events.append(StatusEvent(False, reason, message))  # noqa: FBT003 - no warning

    def wait_until(self, moment: datetime) -> None:
        self.delays.append(max(0.0, (moment - self.now).total_seconds()))


def decide(schedule: EvalSchedule, observed: ObservedSchedule, now: datetime) -> ScheduleDecision:
    """Decide what a schedule does now."""
    before = schedule.status or EvalScheduleStatus()
    observed = replace(observed, runs=select_own_runs(schedule.metadata.name, before, observed.runs))
    replicas = _replicas(observed, before)
    try:
        cron = parse_cron(schedule.spec.schedule, schedule.spec.time_zone)
    except InvalidScheduleError as error:
        return _refuse(schedule, before, str(error), replicas, now)
    if observed.refusal:
        return _refuse(schedule, before, observed.refusal, replicas, now)
    known = take_over_runs(
        heal_status(schedule, before), observed.runs, cron, now, races=schedule.spec.race is not None
    )
    work = _Pass(schedule, cron, observed, now, known)
    _tell_best(work, before.best)
    work.says[Kind.ACCEPTED] = ScheduleText("True", Why.SPEC_ACCEPTED, "")
    _keep_replicas(work, replicas)
    suspended = schedule.spec.suspend
    work.says[Kind.SUSPENDED] = (
        ScheduleText("True", Why.SUSPEND_REQUESTED, "Nothing is started by the clock; write suspend: false to go on.")
        if suspended
        else ScheduleText("False", Why.NOT_SUSPENDED, "")
    )
    _merge(work)
    _open_start(work)
    if work.status.start is not None and (not suspended or work.status.start.trigger is not None):
        _go_on(work, work.status.start)
    _forget_history(work)
    following = None if suspended else cron.next_after(now)
    work.update(next_schedule_time=following)
    if following is not None:
        work.wait_until(following)
    work.says[Kind.GATE_PASSED] = gate_words(work.status)
    status = shown_columns(update_conditions(before, work.status, work.says, schedule, now), cron)
    delay = min([*work.delays, MAX_WAIT_SECONDS])
    return replace(work.decision, status=status, events=tuple(work.events), requeue_after=delay)


def _refuse(
    schedule: EvalSchedule, before: EvalScheduleStatus, problem: str, replicas: ReplicaStep | None, now: datetime
) -> ScheduleDecision:
    """Start no run until the spec changes. Existing replicas are still released when their time is over."""
    says = {Kind.ACCEPTED: ScheduleText("False", Why.INVALID_SCHEDULE, problem), Kind.REPLICAS_READY: NOT_KEPT}
    status = before.model_copy(update={"next_schedule_time": None, "next": None})
    if replicas is None:
        return ScheduleDecision(update_conditions(before, status, says, schedule, now))
    says[Kind.REPLICAS_READY] = replicas.text
    status = update_conditions(before, status.model_copy(update={"replicas": replicas.status}), says, schedule, now)
    return ScheduleDecision(status, replicas=replicas, events=tuple(replicas.events), requeue_after=replicas.delay)


def _replicas(observed: ObservedSchedule, before: EvalScheduleStatus) -> ReplicaStep | None:
    """Return the next step of the replicas that the schedule keeps; None if there is nothing to decide."""
    if observed.replicas is None:
        return None
    given = replace(observed.replicas, runs=observed.runs, refusal=observed.refusal)
    return replica_step(given, before.replicas)


def _keep_replicas(work: _Pass, step: ReplicaStep | None) -> None:
    """Store the next step of the replicas in the decision."""
    work.says[Kind.REPLICAS_READY] = NOT_KEPT if step is None else step.text
    if step is None:
        work.update(replicas=None)
        return
    work.update(replicas=step.status)
    work.events += step.events
    work.decision = replace(work.decision, replicas=step)
    if step.delay is not None:
        work.delays.append(step.delay)


def _merge(work: _Pass) -> None:
    """Continue with the checkpoints that are merged before they get their run."""
    step = merge_step(work.spec, work.status, work.observed.merge_job, work.now)
    work.update(merges=step.merges, evaluated=step.evaluated)
    if step.said is not None or schedule_condition(work.status, Kind.MERGED) is None:
        work.says[Kind.MERGED] = step.said or DONE
    if step.warning:
        work.warn(str(Why.MERGE_FAILED), step.warning)
    if step.delay is not None:
        work.delays.append(step.delay)
    work.decision = replace(work.decision, make_merge=step.make, delete_merge_job=step.delete, merged=step.merged)
    if step.merged:
        text = ", ".join(
            f"{run_name(work.schedule.metadata.name, one.digest)} (step {one.step})" for one in step.merged
        )
        work.tell(str(Why.RUNS_STARTED), f"{text}, merged")


def _open_start(work: _Pass) -> None:
    """Begin a start that is due or was triggered by hand. Give up a start whose deadline has passed."""
    status, spec, now = work.status, work.spec, work.now
    trigger = work.schedule.metadata.annotations.get(names.TRIGGER_ANNOTATION)
    if trigger and trigger[:256] != status.last_trigger:
        asked = OpenStart(time=now, trigger=trigger[:256], job=_take_over_job(work))
        work.update(start=asked, last_trigger=trigger[:256])
        work.tell("StartRequested", f"a start was asked for by hand: {trigger[:256]}")
        return
    created = work.schedule.metadata.creation_timestamp or now
    due = work.cron.last_due(status.last_schedule_time or created, now)
    deadline = spec.starting_deadline_seconds
    if due is not None and status.start is not None and status.start.trigger is not None:
        # The manually triggered start finishes before the scheduled start begins.
        return
    if due is not None and not spec.suspend:
        _miss_open_start(work, "the next one is due")
        if due.missed:
            work.warn("StartsMissed", f"{due.missed} earlier starts were missed: nobody was there to make them")
        if deadline is not None and now - due.time > timedelta(seconds=deadline):
            text = f"{work.cron.render_moment(due.time)} was missed: startingDeadlineSeconds ({deadline}) had passed"
            work.says[Kind.STARTED] = ScheduleText("False", Why.START_MISSED, text)
            work.warn(str(Why.START_MISSED), text)
            work.update(last_schedule_time=due.time, start=None)
        else:
            work.update(last_schedule_time=due.time, start=OpenStart(time=due.time, job=_take_over_job(work)))
        return
    start = status.start
    if start is not None and start.trigger is None and deadline is not None:
        end = start.time + timedelta(seconds=deadline)
        if now > end:
            _miss_open_start(work, f"startingDeadlineSeconds ({deadline}) had passed")
            work.update(start=None)
        else:
            work.wait_until(end + timedelta(seconds=1))


def _take_over_job(work: _Pass) -> str | None:
    """Return the Job of the open start if a new start can use its reply. Delete the Job otherwise.

    A Job that has ended listed the checkpoints before the new start. An operator that was down for a night would use
    such a reply, and leave out checkpoints that were written meanwhile.
    """
    start, job = work.status.start, work.observed.job
    if start is None or job is None or job.name != start.job or job.state == "Running":
        return None if start is None else start.job
    work.decision = replace(work.decision, delete_job=job)
    return None


def _miss_open_start(work: _Pass, why: str) -> None:
    """Report a start that ends without ever having listed the checkpoints."""
    start = work.status.start
    if start is None or start.trigger is not None or start.listed:
        return
    text = f"{work.cron.render_moment(start.time)} was missed: {why}"
    work.says[Kind.STARTED] = ScheduleText("False", Why.START_MISSED, text)
    work.warn(str(Why.START_MISSED), text)


def _go_on(work: _Pass, start: OpenStart) -> None:
    job = work.observed.job
    if start.job is not None:
        # The Job's time to live is over, or somebody deleted it.
        if job is None or job.name != start.job:
            start = start.model_copy(update={"job": None})
            work.update(start=start)
        elif job.state == "Running":
            text = f"Job {job.name} lists the checkpoints. {job.message}".strip()
            work.says[Kind.DISCOVERED] = ScheduleText("Unknown", Why.LISTING, text)
            work.delays.append(POLL_SECONDS)
            return
        else:
            work.decision = replace(work.decision, delete_job=job)
            _take_answer(work, start.model_copy(update={"job": None}), job)
            return
    if work.spec.concurrency_policy == "Forbid" and start.trigger is None:
        earlier = [run.name for run in _find_blocking_runs(work, start)]
        merging = [one.path for one in work.status.merges if one.start != start.time]
        if earlier or merging:
            ended = (
                f"{', '.join(earlier[:3])} has ended"
                if earlier
                else f"{', '.join(merging[:3])} is merged and evaluated"
            )
            text = f"waits until {ended} (concurrencyPolicy: Forbid)"
            work.says[Kind.STARTED] = ScheduleText("False", Why.STILL_RUNNING, text)
            # The end of a run wakes its schedule, so no delay is set.
            return
    if start.next_look_time is not None and work.now < start.next_look_time:
        work.wait_until(start.next_look_time)
        return
    number = work.status.listings + 1
    name = f"{work.schedule.metadata.name}-{(work.schedule.metadata.uid or '')[: names.UID_DIGITS]}-list-{number}"
    work.update(
        listings=number,
        start=start.model_copy(update={"job": name, "looks": start.looks + 1, "next_look_time": None}),
    )
    work.decision = replace(work.decision, make_job=name)
    work.says[Kind.DISCOVERED] = ScheduleText("Unknown", Why.LISTING, f"Job {name} lists the checkpoints.")
    work.delays.append(POLL_SECONDS)


def _find_blocking_runs(work: _Pass, start: OpenStart) -> list[ScheduledRun]:
    own = start.time.isoformat()
    return [run for run in work.observed.runs if not run.complete and not run.gone and run.start != own]


def _take_answer(work: _Pass, start: OpenStart, job: ListingJob) -> None:
    try:
        answer = decode_answer(job.message) if job.state == "Succeeded" else None
        trouble = "" if answer is not None else job.message or f"Job {job.name} failed and left no message"
    except UnreadableAnswerError as error:
        answer, trouble = None, str(error)
    if answer is None:
        failed = fail_listing(start, trouble, work.now)
        work.says |= failed.says
        work.events += failed.events
        work.update(start=failed.start)
        work.delays.append(failed.delay)
        return
    _conclude(work, start.model_copy(update={"failures": 0, "listed": True}), answer)


def _conclude(work: _Pass, start: OpenStart, answer: ListingAnswer) -> None:
    """Start runs for new checkpoints, and end the start or let it list again."""
    there = work.status.evaluated if answer.newest is None else drop_absent(work.status.evaluated, answer.newest)
    # The listing was made with the old list of evaluated checkpoints, so it is made once more.
    if there != work.status.evaluated:
        work.status = heal_status(work.schedule, work.status.model_copy(update={"evaluated": there}))
        work.update(start=start.model_copy(update={"next_look_time": None}))
        work.delays.append(0.0)
        return
    status, spec = work.status, work.spec
    text = f"{answer.folders} checkpoints. {answer.note}".strip()
    work.says[Kind.DISCOVERED] = ScheduleText("True", Why.LISTED, text)
    _tell_troubles(work, answer)
    new = choose_checkpoints(spec, status, answer)
    money = select_affordable(
        spec, status, select_fitting_checkpoints(status, new), sum_gpu_hours_today(status, work.cron, work.now)
    )
    chosen = money.checkpoints
    if chosen:
        _start(work, start, chosen)
    if money.left_out:
        text = f"{money.left_out} checkpoints were left out: {money.message}"
        work.says[Kind.STARTED] = ScheduleText("False", Why.BUDGET_SPENT, text)
        work.warn(str(Why.BUDGET_SPENT), text)
    elif not chosen:
        text = "every sound checkpoint has been evaluated" if answer.folders else "there is no checkpoint yet"
        text = answer.question or text
        work.says[Kind.STARTED] = ScheduleText("True", Why.NOTHING_NEW, text)
    settled = not answer.troubles or (bool(chosen) and spec.checkpoints.policy == "Latest")
    if settled or money.left_out or start.trigger is not None:
        work.update(start=None)
        if start.trigger is not None:
            # A start by the clock may have become due meanwhile.
            work.delays.append(0.0)
        return
    wait = backoff_seconds(max(1, start.looks), FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS)
    again = work.now + timedelta(seconds=wait)
    work.update(start=start.model_copy(update={"next_look_time": again}))
    work.wait_until(again)


def _start(work: _Pass, start: OpenStart, chosen: list[ReadyCheckpoint]) -> None:
    status, spec = work.status, work.spec
    name = work.schedule.metadata.name
    last = status.last_checkpoint
    parent = None if last is None else run_name(name, last.digest)
    parents: list[str | None] = []
    for one in chosen:
        parents.append(None if last is None else run_name(name, last.digest))
        last = newest(last, one.step, checkpoint_url(spec.checkpoints.url, one.path), one.digest)
    runs = [run_name(name, one.digest) for one in chosen]
    if spec.concurrency_policy == "Replace" and start.trigger is None:
        replaced = [run for run in _find_blocking_runs(work, start) if not run.by_hand]
        work.decision = replace(work.decision, delete_runs=tuple(replaced))
        if replaced:
            work.tell("RunsReplaced", f"deleted {', '.join(run.name for run in replaced)} for {', '.join(runs)}")
    work.update(
        evaluated=remember_checkpoints(status.evaluated, ((one.step, one.digest) for one in chosen)),
        merges=add_merges(status.merges, chosen, start, parents),
        last_checkpoint=last,
        active=sorted({*status.active, *runs})[:64],
    )
    at_once = tuple(one for one in chosen if not one.merge)
    work.decision = replace(work.decision, start=at_once, start_time=start.time, trigger=start.trigger, parent=parent)
    if len(at_once) < len(chosen):
        # The next reconciliation creates the Job that merges.
        work.delays.append(0.0)
    text = ", ".join(
        f"{run} (step {one.step}{', once it is merged' if one.merge else ''})"
        for run, one in zip(runs, chosen, strict=True)
    )
    work.says[Kind.STARTED] = ScheduleText("True", Why.RUNS_STARTED, text)
    work.tell(str(Why.RUNS_STARTED), text)


def _tell_best(work: _Pass, before: BestCheckpoint | None) -> None:
    """Report a new best checkpoint of a race, and checkpoints that cannot be told apart from it."""
    best = work.status.best
    if best is None:
        return
    if before is None or before.digest != best.digest:
        beaten = "the first with results" if before is None else f"not behind step {before.step}"
        work.tell("BestChanged", f"step {best.step} is the best checkpoint so far: {beaten}; {best.url}")
    for step in best.rivals:
        if before is None or step not in before.rivals:
            work.warn(
                "NotToldApart",
                f"step {step} cannot be told apart from the best one of its time: see its run's condition GatePassed",
            )


def _tell_troubles(work: _Pass, answer: ListingAnswer) -> None:
    """Record which checkpoints get no run for now, and report each newly broken checkpoint."""
    told = {(one.name, one.reason) for one in work.status.troubled}
    troubled = [
        TroubledCheckpoint(name=one.name, broken=one.broken, reason=one.reason)
        for one in answer.troubles[-MAX_TROUBLED:]
    ]
    for one in troubled:
        if one.broken and (one.name, one.reason) not in told:
            work.warn("CheckpointBroken", f"{one.name} {one.reason}; it gets no run and is looked at again")
    work.update(troubled=troubled)
    broken = [one for one in troubled if one.broken]
    text = "; ".join(f"{one.name} {one.reason}" for one in broken or troubled)[:2000]
    if broken:
        work.says[Kind.SOUND] = ScheduleText("False", Why.BROKEN, text)
    elif troubled:
        work.says[Kind.SOUND] = ScheduleText("Unknown", Why.BEING_WRITTEN, text)
    else:
        work.says[Kind.SOUND] = ScheduleText("True", Why.ALL_SOUND, "")


def _forget_history(work: _Pass) -> None:
    """Delete ended runs beyond the limits, but only after a status that remembers them has been written."""
    before = work.schedule.status
    if before is None:
        return
    going = select_outdated_runs(work.spec, before, work.observed.runs)
    # The last good and the best checkpoint must be in the written status too, because they outlive the runs' objects.
    races = work.spec.race is not None
    known = take_over_runs(before, work.observed.runs, work.cron, work.now, races=races)
    if going and (known.last_good, known.best) == (before.last_good, before.best):
        work.decision = replace(work.decision, delete_runs=(*work.decision.delete_runs, *going))
