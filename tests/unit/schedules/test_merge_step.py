"""Checkpoints whose shards are merged before their run: once each, one at a time, over a driven clock."""

import random
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from builders.operator.schedule_world import BEGIN, ScheduleWorld, evalschedule, write_shards
from builders.operator.world import operator_settings

from evalrun_api.v1alpha1 import EvalScheduleStatus, PendingMerge, ScheduleCondition
from evalrun_operator.schedules.choice import select_affordable
from evalrun_operator.schedules.merge_step import list_protected_digests
from evalrun_operator.schedules.objects import make_merge_job, make_merged_run
from evalrun_operator.schedules.refusals import drop_refused_merge, drop_refused_merged_runs

MERGED, STARTED, SOUND = ScheduleCondition.MERGED, ScheduleCondition.STARTED, ScheduleCondition.SOUND
LONG_AGO = BEGIN - timedelta(days=1)
CACHE = {"spec.merge": {"cache": "pvc://models/merged", "keep": 2}}
EVERY_NEW: dict[str, Any] = {"spec.checkpoints.policy": "EveryNew", "spec.concurrencyPolicy": "Allow"}
ONE = PendingMerge(path="global_step_120/actor", step=120, digest="0123456789abcdef" * 2, start=BEGIN)


def world(directory: Path, changes: Mapping[str, Any] | None = None) -> ScheduleWorld:
    return ScheduleWorld(directory, evalschedule({"spec.timeZone": "Etc/UTC", **CACHE, **(changes or {})}))


def test_a_checkpoint_of_shards_is_merged_once_and_then_evaluated(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16)
    assert (nightly.made, nightly.said(MERGED)) == ([], ("Unknown", "Merging"))
    assert nightly.merge_jobs == [f"nightly-5c4ed-merge-{nightly.status.merges[0].digest[:10]}"]
    nightly.end_merge().wait(minutes=5)
    (run,) = nightly.runs.values()
    assert (nightly.steps, nightly.status.merges, nightly.said(MERGED)) == ([10], [], ("True", "AllMerged"))
    assert run.url == "s3://training/grpo/global_step_10/actor"  # outlives the model in the cache
    nightly.end().wait(days=3)
    assert (nightly.steps, len(nightly.merge_jobs)) == ([10], 1)
    assert nightly.status.last_good is not None
    assert nightly.status.last_good.url == run.url


def test_without_merge_the_shards_are_broken_with_the_way_out(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path, {"spec.merge": None}).wait(hours=16)
    assert (nightly.made, nightly.merge_jobs, nightly.said(SOUND)) == ([], [], ("False", "Broken"))
    assert "write spec.merge" in nightly.message(SOUND)
    assert nightly.said(MERGED) == ("True", "AllMerged")


def test_a_merge_that_fails_is_tried_again_then_left_to_the_next_start(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16)
    for attempt in (1, 2):
        nightly.end_merge("Failed", "OOMKilled").wait(seconds=1)
        assert nightly.said(MERGED) == ("False", "MergeFailed")
        assert nightly.status.merges[0].failures == attempt
        nightly.wait(minutes=20)
    nightly.end_merge("Failed", "OOMKilled").wait(hours=2)
    assert (nightly.status.merges, len(nightly.merge_jobs)) == ([], 3)
    assert "global_step_10/actor (step 10) cannot be merged (3 times in a row): OOMKilled" in nightly.message(MERGED)
    assert [reason for reason, _ in nightly.events].count("MergeFailed") == 2  # the first and the last
    nightly.wait(hours=24)
    assert len(nightly.merge_jobs) == 4
    nightly.end_merge().wait(minutes=1)
    assert (nightly.steps, nightly.said(MERGED)) == ([10], ("True", "AllMerged"))


def test_merges_run_one_after_another_and_forbid_waits_for_them(tmp_path: Path) -> None:
    for step in (10, 20):
        write_shards(tmp_path, step, LONG_AGO)
    nightly = world(tmp_path, {**EVERY_NEW, "spec.concurrencyPolicy": "Forbid"}).wait(hours=16)
    assert len(nightly.merge_jobs) == 1
    nightly.now += timedelta(hours=24)
    nightly.settle()
    assert nightly.said(STARTED) == ("False", "StillRunning")
    assert "global_step_10/actor" in nightly.message(STARTED)
    nightly.end_merge().wait(minutes=1)
    assert (nightly.steps, len(nightly.merge_jobs)) == ([10], 2)
    nightly.end_merge().wait(minutes=1)
    assert nightly.steps == [10, 20]


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_write_each_checkpoint_is_merged_and_evaluated_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    nightly = world(tmp_path, {**EVERY_NEW, "spec.schedule": "*/10 * * * *"})
    for step in range(10, 90, 10):
        write_shards(tmp_path, step, nightly.now - timedelta(hours=1))
        for _ in range(chance.randrange(4, 12)):
            nightly.step(killed_after=chance.choice((None, 0, 1, 2)))
            if chance.random() < 0.7:
                nightly.answer()
            if nightly.merge_job is not None and chance.random() < 0.5:
                nightly.end_merge()
            nightly.now += timedelta(minutes=chance.random() * 5)
    for _ in range(20):
        nightly.wait(minutes=20)
        if nightly.merge_job is not None:
            nightly.end_merge()
    assert sorted(nightly.steps) == list(range(10, 90, 10))
    assert len(set(nightly.made)) == len(nightly.made)
    assert len(set(nightly.merge_jobs)) == 8


def test_a_failure_is_counted_once_though_the_jobs_deletion_was_lost(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end_merge("Failed", "no space left")
    writes = len(nightly._writes(nightly.step(killed_after=0)))
    for _ in range(3):
        nightly.step(killed_after=writes - 1)
        assert nightly.status.merges[0].failures == 1
    nightly.step()
    assert nightly.merge_job is None


def test_refused_merge_job_is_reported_and_retried(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path)
    nightly.settle().now += timedelta(hours=16)
    while not (decision := nightly.step(killed_after=0)).make_merge:
        nightly.step()
        nightly.answer()
    told = drop_refused_merge(decision, "exceeded quota", nightly.schedule, nightly.now)
    nightly.schedule = nightly.schedule.model_copy(update={"status": told.status})
    assert (nightly.said(MERGED), nightly.message(MERGED)) == (("False", "MergeFailed"), "exceeded quota")
    assert [event.message for event in told.events] == ["exceeded quota"]
    nightly.wait(seconds=30)
    assert (nightly.said(MERGED), nightly.merge_jobs) == (("False", "MergeFailed"), [])
    nightly.wait(minutes=1)
    assert (nightly.said(MERGED), len(nightly.merge_jobs)) == (("Unknown", "Merging"), 1)


def test_a_refused_run_is_tried_again_without_another_merge(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end_merge()
    decision = nightly.step(killed_after=0)
    (one,) = decision.merged
    kept = drop_refused_merged_runs(decision, {one.digest: "exceeded quota"}, nightly.schedule, nightly.now)
    nightly.schedule = nightly.schedule.model_copy(update={"status": kept.status})
    nightly.merge_job = None
    assert (nightly.said(STARTED), nightly.message(STARTED)) == (("False", "Refused"), "exceeded quota")
    nightly.wait(minutes=3)
    assert (nightly.steps, len(nightly.merge_jobs), nightly.status.merges) == ([10], 1, [])


def test_merge_taken_out_of_the_spec_gives_its_checkpoints_back(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).change(merge=None)
    nightly.wait(hours=24)
    assert (nightly.status.merges, nightly.merge_job, nightly.said(SOUND)) == ([], None, ("False", "Broken"))


def test_merges_count_for_the_budget(tmp_path: Path) -> None:
    schedule = world(tmp_path, {"spec.budget": {"gpuHoursPerDay": "20"}}).schedule
    status = EvalScheduleStatus(last_run_gpu_hours="8", merges=[ONE])
    new = [ONE.model_copy(update={"digest": digit * 32}) for digit in "ab"]
    found = select_affordable(schedule.spec, status, new, 0)  # type: ignore[arg-type]  # of them it asks their number alone
    assert (len(found.checkpoints), found.left_out) == (1, 1)


def test_the_merger_has_no_credentials_and_the_cache_is_a_directory_of_the_schedules_own() -> None:
    secret = {"credentialsSecretRef": {"name": "bucket"}, "url": "s3://evaluations/grpo"}
    schedule = evalschedule({"spec.merge": {"cache": "s3://models/merged"}, "spec.template.output": secret})
    status = EvalScheduleStatus(merges=[ONE])
    job = make_merge_job(schedule, ONE, status, [], operator_settings())
    pod = job["spec"]["template"]["spec"]
    fetch, merge = pod["initContainers"]
    (store,) = pod["containers"]
    assert fetch["args"] == ["s3://training/grpo/global_step_120/actor", "/scratch/checkpoint"]
    assert "envFrom" not in merge
    assert merge["image"] == operator_settings().ray_image
    assert fetch["envFrom"] == store["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert store["args"] == [
        "/scratch/merged", "s3://models/merged/nightly-5c4ed", "step-120-0123456789", "--keep=3",
        "--protect=0123456789",
    ]  # fmt: skip
    for container in (fetch, merge, store):
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["resources"]["limits"]["memory"]
    run = make_merged_run(schedule, ONE)
    assert run["spec"]["model"]["path"] == "s3://models/merged/nightly-5c4ed/step-120-0123456789"
    assert run["spec"]["lineage"]["step"] == 120


def test_shards_on_a_volume_are_read_where_they_are() -> None:
    changes = {"spec.checkpoints.url": "pvc://training/grpo", **CACHE}
    job = make_merge_job(evalschedule(changes), ONE, EvalScheduleStatus(merges=[ONE]), [], operator_settings())
    pod = job["spec"]["template"]["spec"]
    (merge,) = pod["initContainers"]
    assert "--local_dir=/mnt/claims/training/grpo/global_step_120/actor" in merge["args"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"/scratch": False, "/tmp": False, "/mnt/claims/models": False, "/mnt/claims/training": True}


def test_models_of_active_runs_and_of_other_merges_stay(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end_merge().wait(minutes=1)
    (run,) = nightly.runs.values()
    status = nightly.status.model_copy(update={"merges": [ONE]})
    assert list_protected_digests(status, [run]) == sorted([run.digest[:10], "0123456789"])
    nightly.end()
    assert list_protected_digests(status, list(nightly.runs.values())) == ["0123456789"]
