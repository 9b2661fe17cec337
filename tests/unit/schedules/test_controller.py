"""The schedules' controller against an API server that refuses: what it says of that in the status."""

import json
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from builders.operator.schedule_world import BEGIN, evalschedule
from builders.operator.world import operator_settings
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User
from prometheus_client import CollectorRegistry

from evalrun_cluster.client import Cluster, ExactClient
from evalrun_operator.observation.children import Children
from evalrun_operator.schedules.controller import ScheduleController
from evalrun_operator.schedules.metrics import ScheduleMetrics

CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()


async def test_a_listing_that_the_api_server_refuses_is_told_in_the_status_and_tried_again() -> None:
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
        found = await controller._listing(evalschedule(), "list-1")
    assert (found is None, deletions) == (deleted, ["j"] if deleted else [])
