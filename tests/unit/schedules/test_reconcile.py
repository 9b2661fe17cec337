"""What a schedule does about starts, checkpoints and runs, over a real directory and a driven clock."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders.operator.schedule_world import BEGIN, SHARDS, ScheduleWorld, evalschedule, write_checkpoint

from evalrun_api.v1alpha1 import MAX_EVALUATED, EvalScheduleStatus, Evaluated, ScheduleCondition
from evalrun_operator.schedules.cron import parse_cron
from evalrun_operator.schedules.decision import ScheduleDecision
from evalrun_operator.schedules.reconcile import decide
from evalrun_operator.schedules.refusals import FIRST_LOOK_SECONDS, drop_refused_runs
from evalrun_operator.schedules.run_history import (
    MAX_USAGE,
    is_evaluated,
    remember_checkpoints,
    sum_gpu_hours_today,
    take_over_runs,
)
from evalrun_operator.schedules.runs import ScheduledRun

STARTED, SOUND, DISCOVERED = ScheduleCondition.STARTED, ScheduleCondition.SOUND, ScheduleCondition.DISCOVERED
LONG_AGO = BEGIN - timedelta(days=1)
EVERY_NEW: dict[str, object] = {"spec.checkpoints.policy": "EveryNew", "spec.concurrencyPolicy": "Allow"}


def world(directory: Path, changes: Mapping[str, object] | None = None) -> ScheduleWorld:
    return ScheduleWorld(directory, evalschedule({"spec.timeZone": "Etc/UTC", **(changes or {})}))


def test_a_night_evaluates_the_newest_checkpoint_once(tmp_path: Path) -> None:
    for step in (10, 20):
        write_checkpoint(tmp_path, step, LONG_AGO)
    nightly = world(tmp_path).settle()
    assert (nightly.made, nightly.said(STARTED)) == ([], ("Unknown", "NotYet"))
    assert nightly.status.next == "2026-05-02 03:00 UTC"
    nightly.wait(hours=16)
    (run,) = nightly.runs.values()
    assert nightly.steps == [20]
    assert run.name == f"nightly-{run.digest[:10]}"
    assert nightly.said(STARTED) == ("True", "RunsStarted")
    assert (nightly.status.active, nightly.status.checkpoint) == ([run.name], "step 20")
    nightly.end(run.name).wait(hours=24)
    assert (nightly.steps, nightly.said(STARTED)) == ([20], ("True", "NothingNew"))
    assert nightly.status.good == "step 20"
    write_checkpoint(tmp_path, 30, nightly.now)
    nightly.wait(hours=24)
    assert nightly.steps == [20, 30]


def test_suspended_schedule_shows_no_next_start(tmp_path: Path) -> None:
    nightly = world(tmp_path).settle().change(suspend=True).settle()
    assert (nightly.status.next, nightly.status.next_schedule_time) == (None, None)
    assert nightly.change(suspend=False).settle().status.next == "2026-05-02 03:00 UTC"


def test_run_holds_the_url_and_the_parent_of_its_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.template.lineage": {"phase": "grpo"}}).wait(hours=16)
    (first,) = nightly.runs.values()
    assert first.url == "s3://training/grpo/global_step_10"
    write_checkpoint(tmp_path, 20, nightly.now)
    decision = nightly.end().trigger("now").change().step()
    assert decision.make_job is not None
    nightly.now += timedelta(hours=1)
    nightly.answer()
    decision = nightly.step()
    assert decision.parent == first.name


def test_every_new_takes_each_in_order_bounded_by_tick(tmp_path: Path) -> None:
    for step in (100, 9, 20, 10, 30):
        write_checkpoint(tmp_path, step, LONG_AGO)
    nightly = world(tmp_path, {**EVERY_NEW, "spec.checkpoints.maxPerTick": 3}).wait(hours=16)
    assert nightly.steps == [9, 10, 20]
    assert nightly.wait(hours=24).steps == [9, 10, 20, 30, 100]
    assert nightly.wait(hours=48).steps == [9, 10, 20, 30, 100]


def test_checkpoint_is_not_evaluated_again_after_its_run_is_deleted(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end()
    nightly.wait(hours=1).runs.clear()
    assert nightly.wait(days=3).steps == [10]
    assert nightly.status.last_good is not None
    assert nightly.status.last_good.output_url == f"s3://evaluations/{nightly.made[0].partition('@')[0]}"


def test_a_rewritten_checkpoint_is_a_new_one_and_an_older_one_is_not(tmp_path: Path) -> None:
    for step in (10, 20):
        write_checkpoint(tmp_path, step, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end()
    write_checkpoint(tmp_path, 20, nightly.now, weights="others")
    assert nightly.wait(hours=24).end().steps == [20, 20]
    for file in (tmp_path / "global_step_20").iterdir():
        file.unlink()
    (tmp_path / "global_step_20").rmdir()
    assert nightly.wait(hours=48).steps == [20, 20]  # never back to 10


def test_a_checkpoint_that_is_being_written_is_looked_at_again_the_same_night(tmp_path: Path) -> None:
    night = datetime(2026, 5, 2, 3, 0, tzinfo=UTC)
    write_checkpoint(tmp_path, 10, night - timedelta(seconds=10), missing=SHARDS[1])
    nightly = world(tmp_path).wait(hours=15, minutes=1)
    assert nightly.said(SOUND) == ("Unknown", "BeingWritten")
    assert nightly.made == []
    write_checkpoint(tmp_path, 10, night + timedelta(seconds=60))
    nightly.wait(minutes=20)
    assert nightly.steps == [10]
    assert nightly.said(SOUND) == ("True", "AllSound")


def test_a_broken_checkpoint_gets_an_event_no_run_and_another_look(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    write_checkpoint(tmp_path, 20, LONG_AGO, missing=SHARDS[1])
    nightly = world(tmp_path, EVERY_NEW).wait(hours=24)
    assert nightly.steps == [10]
    broken = [text for reason, text in nightly.events if reason == "CheckpointBroken"]
    assert broken == [f"global_step_20 is missing {SHARDS[1]}; it gets no run and is looked at again"]
    assert nightly.said(SOUND) == ("False", "Broken")
    write_checkpoint(tmp_path, 20, nightly.now - timedelta(hours=1))
    assert nightly.wait(hours=2).steps == [10, 20]


def test_unreachable_bucket_is_retried_within_the_same_night(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path)
    nightly.reachable = False
    nightly.wait(hours=16)
    assert nightly.said(DISCOVERED) == ("False", "ListingFailed")
    assert "could not connect" in nightly.message(DISCOVERED)
    assert [reason for reason, _ in nightly.events].count("ListingFailed") == 1
    nightly.reachable = True
    assert nightly.wait(minutes=11).steps == [10]


def test_night_with_an_unreachable_bucket_is_reported_as_missed(tmp_path: Path) -> None:
    nightly = world(tmp_path)
    nightly.reachable = False
    nightly.wait(hours=40)
    assert any(reason == "StartMissed" and "the next one is due" in text for reason, text in nightly.events)


@pytest.mark.parametrize(
    ("deadline", "steps", "missed"), [(None, [10], False), (3600, [], True), (36_000, [10], False)]
)
def test_start_during_a_downtime_is_made_up_within_the_starting_deadline_else_missed(
    tmp_path: Path, deadline: int | None, steps: list[int], missed: bool
) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.startingDeadlineSeconds": deadline} if deadline else {}).settle()
    nightly.now = datetime(2026, 5, 2, 9, 0, tzinfo=UTC)
    nightly.settle()
    assert nightly.steps == steps
    assert (nightly.said(STARTED)[1] == "StartMissed") == missed


def test_several_nights_that_were_missed_are_counted_and_made_up_once(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).settle()
    nightly.now += timedelta(days=5)
    assert nightly.settle().steps == [10]
    assert ("StartsMissed", "4 earlier starts were missed: nobody was there to make them") in nightly.events


@pytest.mark.parametrize(
    ("policy", "steps", "active"), [("Forbid", [10], [10]), ("Allow", [10, 20], [10, 20]), ("Replace", [10, 20], [20])]
)
def test_concurrency_policy_decides_about_runs_still_active(
    tmp_path: Path, policy: str, steps: list[int], active: list[int]
) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.concurrencyPolicy": policy}).wait(hours=16)
    write_checkpoint(tmp_path, 20, nightly.now)
    nightly.wait(hours=24)
    assert nightly.steps == steps
    assert [run.step for run in nightly.runs.values()] == active
    if policy == "Forbid":
        assert nightly.said(STARTED) == ("False", "StillRunning")
        assert nightly.end().settle().steps == [10, 20]  # at once, not the next night


@pytest.mark.parametrize("policy", ["Replace", "Forbid", "Allow"])
def test_a_start_by_hand_ends_before_one_of_the_clock_that_becomes_due(tmp_path: Path, policy: str) -> None:
    nightly = world(tmp_path, {"spec.concurrencyPolicy": policy}).settle().trigger("by hand")
    nightly.reachable = False
    due = nightly.status.next_schedule_time
    assert due is not None
    nightly.wait(hours=25)
    assert nightly.status.start is not None
    assert nightly.status.start.trigger == "by hand"  # it lists again until the bucket answers
    nightly.reachable = True
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly.wait(hours=1)
    assert [(run.step, run.by_hand) for run in nightly.runs.values()] == [(10, True)]
    assert nightly.status.last_schedule_time is not None
    assert nightly.status.last_schedule_time >= due
    assert nightly.status.start is None or policy == "Forbid"


def test_a_run_that_was_asked_for_by_hand_is_not_replaced(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.concurrencyPolicy": "Replace"}).settle().trigger("by hand").settle()
    write_checkpoint(tmp_path, 20, nightly.now)
    nightly.wait(hours=24)
    write_checkpoint(tmp_path, 30, nightly.now)
    nightly.wait(hours=24)
    assert nightly.steps == [10, 20, 30]
    assert [run.step for run in nightly.runs.values()] == [10, 30]


def test_suspended_schedule_starts_only_runs_triggered_by_hand(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.suspend": True}).wait(days=2)
    assert nightly.made == []
    assert nightly.said(ScheduleCondition.SUSPENDED) == ("True", "SuspendRequested")
    assert nightly.trigger("by hand").settle().steps == [10]
    write_checkpoint(tmp_path, 20, nightly.now - timedelta(hours=1))
    assert nightly.settle().wait(hours=1).steps == [10]  # the same value asks for nothing
    assert nightly.trigger("again").settle().steps == [10, 20]
    assert nightly.status.last_trigger == "again"


def test_after_suspension_the_last_start_is_made_up(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.suspend": True}).wait(days=2)
    assert nightly.change(suspend=False).settle().steps == [10]


def test_the_budget_is_judged_by_the_last_measured_run(tmp_path: Path) -> None:
    # 8 GPUs: four replicas of two.
    for step in (10, 20, 30, 40, 50):
        write_checkpoint(tmp_path, step, LONG_AGO)
    changes = {**EVERY_NEW, "spec.budget": {"gpuHoursPerDay": "24"}, "spec.template.rollout.replicas": 4}
    nightly = world(tmp_path, {**changes, "spec.schedule": "0 * * * *"}).wait(hours=1, minutes=1)
    assert nightly.steps == [10]  # the first one is measured
    assert nightly.said(STARTED) == ("False", "BudgetSpent")
    nightly.end(hours=1).wait(hours=1)  # 8 GPU hours
    assert nightly.steps == [10, 20, 30]
    nightly.end(hours=1).wait(hours=3)
    assert nightly.steps == [10, 20, 30]
    assert "the day has used 24.00" in nightly.message(STARTED)
    assert nightly.wait(hours=8).steps == [10, 20, 30, 40, 50]  # a new day


def test_budget_below_one_run_is_reported_with_the_remedy(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    changes = {"spec.budget": {"gpuHoursPerDay": "4"}, "spec.template.rollout.replicas": 4}
    nightly = world(tmp_path, changes).wait(hours=16).end(hours=1)
    write_checkpoint(tmp_path, 20, nightly.now)
    nightly.wait(hours=24)
    assert nightly.steps == [10]
    assert "raise budget.gpuHoursPerDay" in nightly.message(STARTED)


def test_history_limits_delete_ended_runs_and_keep_their_results_in_the_status(tmp_path: Path) -> None:
    nightly = world(tmp_path, {"spec.successfulRunsHistoryLimit": 2, "spec.failedRunsHistoryLimit": 1})
    for number, succeeded in enumerate((True, False, True, False, True, True)):
        write_checkpoint(tmp_path, 10 * (number + 1), nightly.now)
        nightly.wait(hours=24).end(succeeded=succeeded)
    nightly.wait(hours=1)
    assert [run.step for run in nightly.runs.values()] == [40, 50, 60]
    assert nightly.status.good == "step 60"
    assert len(nightly.status.evaluated.digests) == 6


@pytest.mark.parametrize(
    ("gates", "good", "gate"),
    [
        ([None, None], 20, "NoGate"),
        (["True", "True"], 20, "Passed"),
        (["True", "False"], 10, "Failed"),
        (["True", "Unknown"], 20, "Inconclusive"),  # an inconclusive gate does not freeze the baseline
        (["False", "False"], None, "Failed"),
    ],
)
def test_the_last_good_checkpoint_is_the_newest_whose_gate_did_not_fail(
    tmp_path: Path, gates: list[str | None], good: int | None, gate: str
) -> None:
    nightly = world(tmp_path)
    for number, decided in enumerate(gates):
        write_checkpoint(tmp_path, 10 * (number + 1), nightly.now)
        nightly.wait(hours=24).end(gate=decided)
    nightly.settle()
    last = nightly.status.last_good
    assert (last.step if last else None, nightly.status.gate) == (good, gate)


def test_unreadable_cron_expression_is_reported_as_invalid_schedule(tmp_path: Path) -> None:
    nightly = world(tmp_path, {"spec.schedule": "0 3 30 2 *"}).settle()
    assert nightly.said(ScheduleCondition.ACCEPTED) == ("False", "InvalidSchedule")
    assert nightly.status.reason == "InvalidSchedule"


def night_of_a_start(tmp_path: Path) -> tuple[ScheduleWorld, ScheduleDecision]:
    """Return a schedule, and its decision to start a run."""
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).settle()
    nightly.now += timedelta(hours=16)
    nightly.step()
    nightly.answer()
    return nightly, nightly.step(killed_after=0)


def test_decide_listing_from_before_the_start_lists_again(tmp_path: Path) -> None:
    """An operator is killed before it reads a listing, and comes back when the next start is due."""
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly, _ = night_of_a_start(tmp_path)
    write_checkpoint(tmp_path, 20, nightly.now)
    nightly.now += timedelta(hours=24)
    assert nightly.settle().steps == [20]


def refuse_start(nightly: ScheduleWorld, decision: ScheduleDecision) -> ScheduleDecision:
    """Have the API server refuse the run of a decision; return what is decided then."""
    told = drop_refused_runs(decision, {decision.start[0].digest: "quota exceeded"}, nightly.schedule, nightly.now)
    nightly.schedule = nightly.schedule.model_copy(update={"status": told.status})
    return told


def test_a_run_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    nightly, decision = night_of_a_start(tmp_path)
    told = refuse_start(nightly, decision)
    assert (nightly.said(STARTED), nightly.message(STARTED)) == (("False", "Refused"), "quota exceeded")
    assert nightly.status.last_checkpoint is None
    assert told.requeue_after == FIRST_LOOK_SECONDS  # not at the next start, which may be a day away
    nightly.job = None
    assert nightly.wait(minutes=5).steps == [10]


def test_a_start_by_hand_that_is_refused_is_tried_again_by_a_suspended_schedule_too(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.suspend": True}).settle().trigger("now")
    while not (decision := nightly.step(killed_after=0)).start:
        nightly.step()
        nightly.answer()
    refuse_start(nightly, decision)
    nightly.job = None
    assert nightly.wait(minutes=5).steps == [10]


def test_refused_start_is_not_reported_as_missed_at_the_next_start(tmp_path: Path) -> None:
    nightly, decision = night_of_a_start(tmp_path)
    refuse_start(nightly, decision)
    nightly.job, nightly.now = None, nightly.now + timedelta(hours=24)
    assert "StartMissed" not in [event.reason for event in nightly.step().events]


def test_a_days_gpu_hours_count_more_runs_than_the_status_lists() -> None:
    cron, status = parse_cron("*/10 * * * *", "Etc/UTC"), EvalScheduleStatus()
    for number in range(MAX_USAGE + 20):
        run = ScheduledRun(
            f"run-{number}", f"uid-{number}", "s3://training/a", number, f"{number:010x}", "", BEGIN, complete=True,
            gpus=1, started=BEGIN, released=BEGIN + timedelta(hours=1),
        )  # fmt: skip
        status = take_over_runs(status, [run], cron, BEGIN, races=False)  # those before it are deleted
    assert sum_gpu_hours_today(status, cron, BEGIN) == MAX_USAGE + 20
    assert len(status.usage) <= MAX_USAGE


def test_the_set_of_digests_is_bounded_by_a_high_water_step() -> None:
    evaluated = Evaluated()
    for step in range(1, 301):
        evaluated = remember_checkpoints(evaluated, [(step, f"{step:010x}")])
    assert (evaluated.high_water_step, len(evaluated.digests)) == (44, MAX_EVALUATED)
    assert is_evaluated(evaluated, 44, "f" * 10)  # let go: its step says that it is done
    assert is_evaluated(evaluated, 45, f"{45:010x}")
    assert not is_evaluated(evaluated, 45, "f" * 10)  # rewritten
    assert remember_checkpoints(evaluated, [(3, f"{3:010x}")]) == evaluated


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_write_each_checkpoint_has_one_run(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    nightly = world(tmp_path, {**EVERY_NEW, "spec.schedule": "*/10 * * * *"})
    sound = 0
    for step in range(10, 130, 10):
        broken = chance.random() < 0.1
        sound += not broken
        write_checkpoint(tmp_path, step, nightly.now - timedelta(hours=1), missing=SHARDS[0] if broken else None)
        for _ in range(chance.randrange(4, 12)):
            nightly.step(killed_after=chance.choice((None, 0, 1, 2)))
            if chance.random() < 0.7:
                nightly.answer()
            nightly.now += timedelta(minutes=chance.random() * 5)
    nightly.wait(hours=3)
    assert len(set(nightly.made)) == len(nightly.made) == sound


def test_decide_again_from_the_same_state_changes_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end().wait(hours=1)
    again = decide(nightly.schedule, nightly.observed(), nightly.now)
    assert again.status == nightly.status
    assert EvalScheduleStatus.model_validate(again.status.to_wire()) == again.status
