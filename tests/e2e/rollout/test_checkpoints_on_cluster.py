"""Two checkpoints of a verl training on real pods: found, merged, evaluated by replicas of their own, on one curve."""

import json
import time
from pathlib import Path

import pytest
from builders.cluster.checkpoints import (
    CACHE,
    SCHEDULE,
    await_run,
    cached_models,
    finish_step,
    schedule_manifest,
)
from builders.cluster.install import Installed
from builders.cluster.rollout import CLUSTER_GONE, GENERATED, PODS_GONE, REPLICAS, follow
from builders.cluster.runs import FinishedRun, outcome
from builders.command_line import evalrun
from builders.results.exports import wandb_records

from evalrun_runtime.exits import ExitCode


def ask_for_a_start(install: Installed) -> None:
    done = evalrun("schedule", "run", SCHEDULE, "--namespace", install.runs)
    assert done.returncode == 0, done.stdout + done.stderr


def told(run: FinishedRun, kind: str) -> str:
    return next(f"{one['status']} {one['reason']}" for one in run.status["conditions"] if one["type"] == kind)


def curve_rows(outputs: Path) -> list[tuple[str, int, float]]:
    """Return the curve's id, step and figure of each row that a run left for `wandb sync`."""
    rows = []
    for file in outputs.glob("wandb/offline-run-*/run-*.wandb"):
        records = list(wandb_records(file))
        (run,) = (record.run for record in records if record.WhichOneof("record_type") == "run")
        logged = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for record in records
            for item in record.history.item
        }
        if run.job_type == "curve":
            rows.append((run.run_id, logged["checkpoint_step"], logged["eval/slow/accepted_at_1"]))
    return rows


@pytest.mark.timeout(2400)  # loading an image of 7 GB, two merges, and replicas that start on two CPUs
def test_each_checkpoint_is_merged_evaluated_and_compared_with_the_previous_one(
    training: Installed,
    ray_images: dict[str, str],
    problems: tuple[Path, dict[str, str]],
    directory: Path,
    tmp_path: Path,
) -> None:
    file, wanted = problems
    finish_step(training, 10)  # step 20 is there, but may still be written to
    applied = time.monotonic()
    training.start(schedule_manifest(file, ray_images["gen"]), directory)
    ask_for_a_start(training)
    first = await_run(training, 10)
    print(f"{time.monotonic() - applied:7.1f} s  merged, {first} is there")
    course = follow(training, first, applied)
    assert course.status["phase"] == "Succeeded", course.status["conditions"]

    judged, total = course.judged_when_gone
    print(f"Ray's pods were gone when {judged} of {total} answers were judged")
    assert course.seconds["ClusterReady"] < course.seconds[GENERATED] < course.seconds[CLUSTER_GONE]
    assert course.seconds[PODS_GONE] < course.seconds["Judged"]
    assert judged < total == len(wanted)
    status = training.cluster.get(training.runs, "evalschedule", SCHEDULE)["status"]
    assert [one["name"] for one in status["troubled"]] == ["global_step_20"]

    finish_step(training, 20)
    applied = time.monotonic()
    ask_for_a_start(training)
    second = await_run(training, 20)
    print(f"{time.monotonic() - applied:7.1f} s  merged, {second} is there")
    runs = {10: outcome(training, first), 20: outcome(training, second, seconds=900)}
    print(f"{time.monotonic() - applied:7.1f} s  {second} has ended")

    for step, run in runs.items():
        manifest = training.cluster.get(training.runs, "evalrun", run.name)
        assert run.status["attempts"] == 1
        assert run.info["spec"]["lineage"]["step"] == step
        assert manifest["metadata"]["annotations"]["evalrun.dev/checkpoint-url"].endswith(f"global_step_{step}/actor")
        model = manifest["spec"]["model"]["path"].removeprefix(f"pvc://{CACHE}")
        assert "model.safetensors" in cached_models(training)[f"/{CACHE}{model}"]
        assert len({replica["address"] for replica in run.info["replicas"]}) == REPLICAS
    verdicts = {step: {problem: said for (_, problem, _), said in run.verdicts.items()} for step, run in runs.items()}
    assert verdicts[10] == wanted
    assert verdicts[20] == dict.fromkeys(wanted, "runtime_error")
    assert told(runs[20], "GatePassed") == "False Regression"
    assert runs[20].info["spec"]["lineage"]["parent"] == first

    status = training.cluster.get(training.runs, "evalschedule", SCHEDULE)["status"]
    assert {one["step"] for one in status["evaluated"]["digests"]} == {10, 20}
    assert (status["lastCheckpoint"]["step"], status["lastGood"]["step"]) == (20, 10)
    manifest = training.cluster.get(training.runs, "evalrun", second)
    assert manifest["spec"]["gates"][0]["baseline"] == status["lastGood"]["outputURL"]
    assert status["latestResult"]["gate"] == "False"
    every = training.cluster.get(training.runs, "evalruns", "--selector", f"evalrun.dev/schedule={SCHEDULE}")["items"]
    assert {one["metadata"]["name"] for one in every} == {first, second}

    share = sum(said == "success" for said in wanted.values()) / len(wanted)
    rows = []
    for step, run in runs.items():
        outputs = tmp_path / "outputs" / run.name
        done = evalrun("results", run.name, "--namespace", training.runs, "--output", outputs)
        assert done.returncode == (ExitCode.SUCCEEDED if step == 10 else ExitCode.GATE_FAILED), (
            done.stdout + done.stderr
        )
        rows += curve_rows(outputs)
    assert {curve for curve, _, _ in rows} == {rows[0][0]}
    assert [(step, value) for _, step, value in rows] == [(10, pytest.approx(share)), (20, 0)]
    shown = evalrun("history", tmp_path / "outputs", "--format", "json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    (curve,) = json.loads(shown.stdout)["curves"]
    print(evalrun("history", tmp_path / "outputs").stdout)
    points = [(point["step"], point["value"]) for point in curve["points"]]
    assert (curve["schedule"], points) == (SCHEDULE, [(10, pytest.approx(share)), (20, 0)])
