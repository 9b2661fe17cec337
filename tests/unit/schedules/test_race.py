"""A schedule that races its checkpoints: which one is the best, what each is compared with, and what heals."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from builders.operator.schedule_world import ScheduleWorld, evalschedule, write_checkpoint, write_shards

from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import find_problems, schema_for
from evalrun_api.v1alpha1 import BestCheckpoint
from evalrun_api.v1alpha1.schedule import Race
from evalrun_operator.schedules.objects import make_eval_run, race_gate
from evalrun_operator.schedules.runs import parse_scheduled_run


def a_race(root: Path, changes: dict[str, Any] | None = None) -> ScheduleWorld:
    return ScheduleWorld(root, evalschedule({"spec.race": {"dataset": "mbpp_reg"}, **(changes or {})}))


def nights(race: ScheduleWorld, root: Path, gates: list[str | None], **ends: Any) -> ScheduleWorld:
    """Let a checkpoint come each night and end with this condition of its gates."""
    for gate in gates:
        write_checkpoint(root, 10 * (len(race.made) + 1), race.now)
        race.wait(hours=24).end(gate=gate, **ends)
    return race.settle()


@pytest.mark.parametrize(
    ("gates", "best", "rivals"),
    [
        ([None], 10, []),
        ([None, "True"], 20, []),
        ([None, "False"], 10, []),
        ([None, "Unknown"], 10, [20]),
        ([None, "Unknown", "False", "Unknown"], 10, [20, 40]),
        ([None, "Unknown", "True"], 30, [20]),
        ([None, "True", "False", "True", "False"], 40, []),
    ],
)
def test_best_checkpoint_is_the_last_that_passed_against_the_best_so_far(
    tmp_path: Path, gates: list[str | None], best: int, rivals: list[int]
) -> None:
    found = nights(a_race(tmp_path), tmp_path, gates).status.best
    assert found is not None
    assert (found.step, found.rivals) == (best, rivals)


def test_each_checkpoint_is_compared_with_the_best_of_its_time(tmp_path: Path) -> None:
    race = nights(a_race(tmp_path), tmp_path, [None, "True", "False", "True"])
    names = [made.partition("@")[0] for made in race.made]
    against = {run.name: run.raced_against for run in race.runs.values()}
    places = [f"s3://evaluations/{name}" for name in names]
    assert [against[name] for name in names if name in against] == [places[0], places[1], places[1]]
    assert [message.partition(":")[0] for reason, message in race.events if reason == "BestChanged"] == [
        f"step {step} is the best checkpoint so far" for step in (10, 20, 40)
    ]


def test_run_stopped_early_is_not_the_best_of_the_race(tmp_path: Path) -> None:
    assert nights(a_race(tmp_path), tmp_path, [None], stopped_early=True).status.best is None
    assert nights(a_race(tmp_path), tmp_path, [None]).status.best is not None


def test_a_run_that_was_compared_with_an_earlier_best_is_no_candidate(tmp_path: Path) -> None:
    race = nights(a_race(tmp_path), tmp_path, [None])
    write_checkpoint(tmp_path, 20, race.now)
    race.wait(hours=24)
    write_checkpoint(tmp_path, 30, race.now - timedelta(hours=1))
    race.trigger("now").settle()  # beside the one of step 20, which has not ended
    by_step = {run.step: run for run in race.runs.values()}
    assert by_step[20].raced_against == by_step[30].raced_against
    race.end(by_step[20].name, gate="True").settle()
    race.end(by_step[30].name, gate="True").settle()
    assert race.status.best is not None
    assert (race.status.best.step, race.status.best.rivals) == (20, [])


def test_best_checkpoint_outlives_its_run_and_is_forgotten_with_the_race(tmp_path: Path) -> None:
    race = nights(a_race(tmp_path, {"spec.successfulRunsHistoryLimit": 1}), tmp_path, [None, "False", "False"])
    assert {run.step for run in race.runs.values()} == {30}
    assert race.status.best is not None
    assert race.status.best.step == 10
    assert race.status.best_step == "step 10"
    assert race.change(race=None).settle().status.best is None


def test_a_best_checkpoint_that_was_never_evaluated_is_forgotten(tmp_path: Path) -> None:
    race = nights(a_race(tmp_path), tmp_path, [None])
    evil = BestCheckpoint(url="pvc://evil/own", step=999, digest="f" * 20, output_url="s3://evil")
    race.schedule = race.schedule.model_copy(update={"status": race.status.model_copy(update={"best": evil})})
    best = race.settle().status.best
    assert best is not None
    assert best.step == 10


@pytest.mark.parametrize("count", [2, 3, 7, 10, 100])
def test_a_race_spends_at_most_five_percent_on_all_comparisons_of_the_best(count: int) -> None:
    confidence = Decimal(Race(dataset="mbpp_reg", checkpoints=count).confidence)
    assert (1 - confidence) / 2 * count <= Decimal("0.05")
    assert confidence <= Decimal("0.999")


def test_the_gate_of_a_race_is_one_that_a_run_may_have(tmp_path: Path) -> None:
    race = nights(a_race(tmp_path, {"spec.allowTestRole": ["mbpp_reg"]}), tmp_path, [None])
    best = race.status.best
    assert best is not None
    asked = Race(dataset="mbpp_reg", allow_forgeable=True)
    manifest = {"spec.template.gates": [race_gate(asked, best, ["mbpp_reg", "other"])]}
    schedule = evalschedule(manifest)
    assert find_problems(schedule.to_wire(), place="cluster") == []
    (gate,) = schedule.spec.template.gates
    assert (gate.sequential, gate.keep_passing, gate.allow_forgeable) == (True, True, True)
    assert gate.allow_test_role == ["mbpp_reg"]
    assert (gate.baseline, gate.min_gain) == (best.output_url, 0.0)


def test_run_that_loses_the_race_has_no_failed_gate(tmp_path: Path) -> None:
    status = nights(a_race(tmp_path), tmp_path, [None, "False"]).status
    assert (status.gate, status.latest_result and status.latest_result.step) == ("NoGate", 20)


def test_forged_run_is_not_taken_for_the_run_of_a_checkpoint_being_merged(tmp_path: Path) -> None:
    race = a_race(tmp_path, {"spec.merge": {"cache": "s3://models"}})
    write_shards(tmp_path, 10, race.now)
    race.wait(hours=24)
    (one,) = race.status.merges
    found = ReadyCheckpoint(path=one.path, step=one.step, digest=one.digest)
    forged = make_eval_run(race.schedule, found, one.start, None)
    forged["spec"]["model"]["path"] = "pvc://evil/model"
    forged["metadata"] |= {"uid": "forged", "creationTimestamp": race.now.isoformat(), "generation": 1}
    seen = parse_scheduled_run(apply_defaults(schema_for("cluster"), forged))
    assert seen is not None
    race.runs["forged"] = replace(seen, complete=True, succeeded=True, output_url="s3://evil/out")
    race.settle()
    assert (race.status.best, race.status.last_good) == (None, None)
    assert [each.run_uid for each in race.status.evaluated.digests] == [None]
