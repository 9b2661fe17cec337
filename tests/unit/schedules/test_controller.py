"""The schedules' controller against an API server that refuses: what it says of that in the status."""

import json
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from builders.operator.evalschedules import KEPT
from builders.operator.schedule_world import BEGIN, UID, evalschedule
from builders.operator.world import operator_settings
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User
from prometheus_client import CollectorRegistry

from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_cluster.client import Cluster, ExactClient
from evalrun_operator.observation.children import Children
from evalrun_operator.schedules.controller import ScheduleController
from evalrun_operator.schedules.metrics import ScheduleMetrics
from evalrun_operator.schedules.objects import make_eval_run

CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()


async def test_listing_refused_by_the_api_server_is_reported_in_the_status_and_retried() -> None:
    """It had been tried again without end, and only the operator's log said so."""
    written: list[dict[str, Any]] = []
    fences: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/jobs"):
            body = {"kind": "Status", "status": "Failure", "code": 403, "message": "exceeded quota: jobs"}
            return httpx2.Response(403, json=body, request=request)
        if request.method == "GET":
            return httpx2.Response(200, json={"items": []}, request=request)
        body = json.loads(request.content)
        if request.method == "PUT":
            written.append(body["status"])
        if request.url.path.endswith("/networkpolicies"):
            fences.append(body)
        return httpx2.Response(200, json=body, request=request)

    now = BEGIN + timedelta(hours=16)
    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer))
    async with client:
        controller = ScheduleController(
            operator_settings(),
            Cluster(client),
            Children(lambda _: None),
            ScheduleMetrics(CollectorRegistry()),
            lambda *_: None,
            lambda: now,
        )
        manifest = evalschedule().to_wire()
        manifest["metadata"]["resourceVersion"] = "1"
        controller.saw(manifest)
        await controller.work(("evals", "nightly"))
    (fence,) = fences  # before the Job: it bounds its pods from their start
    assert fence["metadata"]["name"] == "nightly-checkpoints"
    (status,) = written
    said = {one["type"]: one for one in status["conditions"]}
    assert (said["Discovered"]["status"], said["Discovered"]["reason"]) == ("False", "ListingFailed")
    assert "exceeded quota: jobs" in said["Discovered"]["message"]
    assert said["Started"]["reason"] == "ListingFailed"
    assert "job" not in status["start"]
    assert datetime.fromisoformat(status["start"]["nextLookTime"]) == now + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("image", "reason", "deleted"),
    [("wrong:1", "ImagePullBackOff", True), ("wrong:1", "ContainerCreating", False), ("", "ImagePullBackOff", False)],
)
async def test_listing_job_that_waits_for_an_image_no_longer_named_is_replaced(
    image: str, reason: str, deleted: bool
) -> None:
    """It had lived for 15 minutes, although the image had been corrected."""
    settings = operator_settings()
    container = {"name": "checkpoints", "image": image or settings.aggregator_image}
    job = {
        "metadata": {"name": "list-1", "namespace": "evals", "uid": "j"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    waiting = {"state": {"waiting": {"reason": reason, "message": "not found"}}}
    pod = {"metadata": {"name": "p", "namespace": "evals"}, "status": {"containerStatuses": [waiting]}}
    deletions: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            deletions.append(request.url.params["uid"])
            return httpx2.Response(200, json={"kind": "Status", "status": "Success"}, request=request)
        items = [job] if request.url.path.endswith("/jobs") else [pod]
        return httpx2.Response(200, json={"items": items}, request=request)

    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer))
    async with client:
        controller = ScheduleController(
            settings,
            Cluster(client),
            Children(lambda _: None),
            ScheduleMetrics(CollectorRegistry()),
            lambda *_: None,
            lambda: BEGIN,
        )
        found = await controller._fetch_listing_job(evalschedule(), "list-1")
    assert (found is None, deletions) == (deleted, ["j"] if deleted else [])


async def test_status_says_how_kept_replicas_were_made_and_their_policy_is_compared_again() -> None:
    """The image was announced by an earlier template; and a policy that was deleted had stayed away."""
    written: list[dict[str, Any]] = []
    fences: list[str] = []
    clusters: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            items = clusters if request.url.path.endswith("/rayclusters") else []
            return httpx2.Response(200, json={"items": items}, request=request)
        body = json.loads(request.content)
        if request.method == "PUT":
            written.append(body["status"])
            metadata = {**manifest["metadata"], "resourceVersion": str(len(written) + 1)}
            body = {**manifest, "metadata": metadata, "status": body["status"]}
            return httpx2.Response(200, json=body, request=request)
        if request.url.path.endswith("/rayclusters"):
            body["metadata"] |= {"uid": "c", "creationTimestamp": BEGIN.isoformat()}
            clusters.append(body)
        elif request.url.path.endswith("/networkpolicies"):
            fences.append(body["metadata"]["name"])
        return httpx2.Response(200, json=body, request=request)

    now = [BEGIN + timedelta(minutes=1)]
    schedule = evalschedule({**KEPT, "spec.template.rollout.image": "new:2"})
    manifest, state = schedule.to_wire(), {"number": 1, "cluster": f"nightly-{UID[:5]}-kept-1", "image": "old:1"}
    manifest["metadata"]["resourceVersion"] = "1"
    recorded = {"digests": [{"digest": "a" * 10, "step": 1}]}
    manifest["status"] = {"evaluated": recorded, "replicas": {**state, "since": BEGIN.isoformat()}}
    run = make_eval_run(schedule, ReadyCheckpoint(path="x", step=1, digest="a" * 10), BEGIN, None)
    run["metadata"] |= {"uid": "r", "creationTimestamp": BEGIN.isoformat()}
    admitted = {"type": "Admitted", "status": "False", "reason": "WaitingForReplicas", "message": ""}
    run["status"] = {"conditions": [{**admitted, "lastTransitionTime": BEGIN.isoformat()}]}
    settings = operator_settings()
    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer))
    async with client:
        controller = ScheduleController(
            settings,
            Cluster(client),
            Children(lambda _: None),
            ScheduleMetrics(CollectorRegistry()),
            lambda *_: None,
            lambda: now[0],
        )
        controller.saw(manifest)
        controller.saw_run(run)
        await controller.work(("evals", "nightly"))
        made = written[-1]["replicas"]
        assert (made["clusterUid"], made["image"], made["auth"]) == ("c", "new:2", "token")
        assert fences == ["nightly-kept"]
        for seconds, count in ((5.0, 1), (settings.resync_seconds, 2)):
            now[0] += timedelta(seconds=seconds)
            await controller.work(("evals", "nightly"))
            assert len(fences) == count
