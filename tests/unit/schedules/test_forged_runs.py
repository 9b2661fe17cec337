"""Runs that claim to be a schedule's, and a status that they have deceived: neither changes what is evaluated."""

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from builders.operator.schedule_world import BEGIN, ScheduleWorld, evalschedule, write_checkpoint
from builders.operator.world import operator_settings
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User
from prometheus_client import CollectorRegistry

from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import schema_for
from evalrun_api.v1alpha1 import (
    Checkpoint,
    EvalScheduleStatus,
    Evaluated,
    EvaluatedDigest,
    GoodCheckpoint,
    LatestResult,
    RunUsage,
    ScheduleCondition,
)
from evalrun_cluster.client import Cluster, ExactClient
from evalrun_cluster.errors import NameTakenError
from evalrun_operator.observation.children import Children
from evalrun_operator.schedules.controller import ScheduleController
from evalrun_operator.schedules.metrics import ScheduleMetrics
from evalrun_operator.schedules.objects import make_eval_run, run_name
from evalrun_operator.schedules.run_history import add_run_uids, select_own_runs
from evalrun_operator.schedules.runs import ScheduledRun

LONG_AGO = BEGIN - timedelta(days=1)
FAR, FORGED_DIGEST = 999_999_999, "f" * 32
CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()
FORGED = ScheduledRun(
    name="forged", uid="forged", url="pvc://evil/own", step=FAR, digest=FORGED_DIGEST, start="", created=BEGIN,
    complete=True, succeeded=True, output_url="s3://evil/outputs", started=BEGIN, released=BEGIN, gpus=8,
)  # fmt: skip


def world(directory: Path) -> ScheduleWorld:
    write_checkpoint(directory, 40, LONG_AGO)
    return ScheduleWorld(directory, evalschedule({"spec.timeZone": "Etc/UTC"}))


@pytest.mark.parametrize(
    "forged", [FORGED, replace(FORGED, complete=False), replace(FORGED, name="nightly-ffffffffff")]
)
def test_run_of_a_checkpoint_that_was_never_chosen_is_not_the_schedules(tmp_path: Path, forged: ScheduledRun) -> None:
    nightly = world(tmp_path)
    nightly.runs[forged.uid] = forged
    nightly.wait(hours=16)
    assert nightly.steps == [40]
    assert nightly.status.checkpoint == "step 40"
    assert (nightly.status.last_good, nightly.status.latest_result, nightly.status.usage) == (None, None, [])
    assert forged.uid in nightly.runs  # nor is it deleted as history


def test_run_that_took_the_name_of_a_deleted_run_is_not_the_schedules(tmp_path: Path) -> None:
    nightly = world(tmp_path).wait(hours=16).end().wait(hours=1)
    (real,) = nightly.runs.values()
    good = nightly.status.last_good
    nightly.runs.clear()
    nightly.runs["other"] = replace(real, uid="other", output_url="s3://evil/outputs")
    nightly.wait(hours=24)
    assert nightly.status.last_good == good
    assert nightly.status.evaluated.digests[0].run_uid == real.uid


def poisoned(**more: object) -> EvalScheduleStatus:
    return EvalScheduleStatus.model_validate(
        {
            "evaluated": Evaluated(digests=[EvaluatedDigest(digest=FORGED_DIGEST, step=FAR)]),
            "last_checkpoint": Checkpoint(url="pvc://evil/own", step=FAR, digest=FORGED_DIGEST),
            "last_good": GoodCheckpoint(url="pvc://evil/own", step=FAR, digest=FORGED_DIGEST, output_url="s3://evil"),
            "latest_result": LatestResult(run="forged", step=FAR),
            "active": ["forged"],
            "usage": [RunUsage(run="forged", day="2026-05-02", gpu_hours="1000.00")],
            **more,
        }
    )


@pytest.mark.parametrize(
    "status",
    [
        poisoned(),
        poisoned(evaluated=Evaluated()),
        poisoned(evaluated=Evaluated(high_water_step=FAR)),
        poisoned(evaluated=Evaluated(high_water_step=FAR, digests=[EvaluatedDigest(digest="e" * 32, step=FAR)])),
    ],
)
def test_poisoned_status_heals_and_the_newest_checkpoint_is_evaluated(
    tmp_path: Path, status: EvalScheduleStatus
) -> None:
    nightly = world(tmp_path)
    nightly.schedule = nightly.schedule.model_copy(update={"status": status})
    nightly.wait(hours=16)
    assert nightly.steps == [40]
    assert nightly.status.last_checkpoint is not None
    assert (nightly.status.last_checkpoint.step, nightly.status.usage) == (40, [])
    nightly.end().wait(hours=1)
    assert nightly.status.last_good is not None
    assert nightly.status.last_good.url == "s3://training/grpo/global_step_40"
    assert nightly.status.latest_result is not None
    assert nightly.status.latest_result.step == 40
    nightly.wait(hours=48)
    assert (nightly.steps, nightly.said(ScheduleCondition.STARTED)) == ([40], ("True", "NothingNew"))


def test_deletion_of_the_newest_evaluated_checkpoint_starts_no_further_run(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 50, LONG_AGO)
    nightly = world(tmp_path).wait(hours=16).end().wait(hours=1)
    for file in (tmp_path / "global_step_50").iterdir():
        file.unlink()
    (tmp_path / "global_step_50").rmdir()
    assert nightly.wait(hours=48).steps == [50]


PREMADE: list[dict[str, Any]] = [
    {"spec.model.path": "pvc://evil/own"},
    {"spec.output.url": "s3://evil/outputs"},
    {"metadata.annotations": {"evalrun.dev/checkpoint-digest": FORGED_DIGEST}},
]


@pytest.mark.parametrize("changes", [{}, *PREMADE])
async def test_run_premade_under_the_next_name_is_adopted_only_if_it_is_equal(
    changes: dict[str, Any],
) -> None:
    """Its name and the owner's uid can be known before. An equal run is left by a pass that was cut off."""
    schedule = evalschedule()
    wanted = make_eval_run(schedule, ReadyCheckpoint(path="x", step=40, digest=FORGED_DIGEST), BEGIN, None)
    there = apply_defaults(schema_for("cluster"), copy.deepcopy(wanted))
    there["metadata"] |= {"uid": "first", "resourceVersion": "1"}
    for path, value in changes.items():
        *folders, last = path.split(".")
        place = there
        for folder in folders:
            place = place[folder]
        place[last] = value

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            body = {"kind": "Status", "status": "Failure", "code": 409, "reason": "AlreadyExists", "message": "exists"}
            return httpx2.Response(409, json=body, request=request)
        return httpx2.Response(200, json={"items": [there]}, request=request)

    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer))
    async with client:
        metrics = ScheduleMetrics(CollectorRegistry())
        controller = ScheduleController(
            operator_settings(), Cluster(client), Children(lambda _: None), metrics, lambda key, _: None, lambda: BEGIN
        )
        if not changes:
            assert await controller._make_run(wanted) == "first"
            return
        with pytest.raises(NameTakenError, match=r"differs from what the schedule would make.* Delete it"):
            await controller._make_run(wanted)


def test_recorded_uid_of_a_made_run_keeps_another_run_of_its_name_out() -> None:
    status = EvalScheduleStatus(evaluated=Evaluated(digests=[EvaluatedDigest(digest=FORGED_DIGEST, step=40)]))
    status = add_run_uids(status, {FORGED_DIGEST: "ours", "e" * 32: "another's"})
    name = run_name("nightly", FORGED_DIGEST)
    ours = replace(FORGED, name=name, uid="ours", step=40)
    assert select_own_runs("nightly", status, [replace(ours, uid="theirs"), ours]) == (ours,)


async def test_controller_run_of_another_namespace_is_not_the_schedules() -> None:
    """Its owner reference had named the schedule's uid, and nothing asked for the namespace."""
    schedule = evalschedule()
    forged = make_eval_run(schedule, ReadyCheckpoint(path="x", step=FAR, digest=FORGED_DIGEST), BEGIN, None)
    forged["metadata"] |= {
        "namespace": "tenant-b", "uid": "forged", "resourceVersion": "1", "creationTimestamp": BEGIN.isoformat(),
    }  # fmt: skip
    woken: list[tuple[str, str]] = []
    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(lambda _: httpx2.Response(500)))
    async with client:
        metrics = ScheduleMetrics(CollectorRegistry())
        controller = ScheduleController(
            operator_settings(),
            Cluster(client),
            Children(lambda _: None),
            metrics,
            lambda key, _: woken.append(key),
            lambda: BEGIN,
        )
        controller.saw({**schedule.to_wire(), "metadata": {**schedule.metadata.to_wire(), "resourceVersion": "1"}})
        woken.clear()
        controller.saw_run(forged)
        assert (await controller._observe(schedule)).runs == ()
        assert ("evals", "nightly") not in woken
        ours = {**forged, "metadata": {**forged["metadata"], "namespace": "evals"}}
        controller.saw_run(ours)
        assert [run.uid for run in (await controller._observe(schedule)).runs] == ["forged"]
        controller.saw_run(forged, gone=True)
        assert controller._runs.keys() == {("evals", schedule.metadata.uid)}
