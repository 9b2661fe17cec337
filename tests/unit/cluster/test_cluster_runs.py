"""The commands' requests to an API server, which is a table of answers here; lightkube is the real one."""

import io
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from builders.operator.world import UID, evalrun, generating

from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRun
from evalrun_cluster.errors import UnreachableError
from evalrun_cluster.runs import ClusterRuns, RunPod, connect
from evalrun_runtime.exits import BadInputError

RUNS = "/apis/evalrun.dev/v1alpha1/namespaces/evals/evalruns"
PODS = "/api/v1/namespaces/evals/pods"
CONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "test",
    "clusters": [{"name": "test", "cluster": {"server": "http://cluster.invalid"}}],
    "users": [{"name": "me", "user": {"token": "mine"}}],
    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me", "namespace": "evals"}}],
}  # fmt: skip


class Answers:
    """Answers by method and path; keeps what was asked."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], httpx2.Response] = {}
        self.asked: list[httpx2.Request] = []

    def add(self, method: str, path: str, body: Any, code: int = 200) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.known[method, path] = httpx2.Response(code, content=content, headers={"Content-Type": "application/json"})

    def refuse(self, method: str, path: str, code: int, message: str, **details: str) -> None:
        body = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
            "details": details,
        }  # fmt: skip
        self.add(method, path, body, code)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        answer = self.known.get((request.method, request.url.path))
        if answer is None:
            raise httpx2.ConnectError("nobody there", request=request)
        return answer


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def runs(answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterRuns:
    (tmp_path / "config").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return connect(None, transport=httpx2.MockTransport(answers))


def wire() -> dict[str, Any]:
    return {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", **evalrun().to_wire()}


async def test_a_run_is_read_in_the_contexts_namespace(runs: ClusterRuns, answers: Answers) -> None:
    answers.add("GET", f"{RUNS}/run", wire())
    found = await runs.get("run")
    assert found is not None
    assert found.metadata.uid == UID
    assert answers.asked[0].headers["authorization"] == "Bearer mine"


async def test_missing_run_is_distinguished_from_missing_crd(runs: ClusterRuns, answers: Answers) -> None:
    answers.refuse("GET", f"{RUNS}/run", 404, "not found", name="run", kind="evalruns")
    assert await runs.get("run") is None
    answers.refuse("GET", f"{RUNS}/run", 404, "the server could not find the requested resource")
    with pytest.raises(BadInputError, match="install evalrun there first"):
        await runs.get("run")


async def test_refusal_is_bad_input_and_silence_is_not(runs: ClusterRuns, answers: Answers) -> None:
    with pytest.raises(UnreachableError, match="nobody there"):
        await runs.get("run")
    answers.refuse("GET", f"{RUNS}/run", 403, "evalruns is forbidden: User cannot get")
    with pytest.raises(BadInputError, match="is forbidden"):
        await runs.get("run")


async def test_every_object_of_a_file_is_applied_server_side(runs: ClusterRuns, answers: Answers) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "x"}}
    answers.add("PATCH", "/api/v1/namespaces/evals/secrets/key", secret)
    answers.add("PATCH", f"{RUNS}/run", wire())
    assert await runs.apply(secret) == "secret/key"
    assert await runs.apply({**wire(), "metadata": {"name": "run"}}) == "evalrun/run"
    assert [request.url.params["fieldManager"] for request in answers.asked] == ["evalrun-cli"] * 2
    assert {request.headers["content-type"] for request in answers.asked} == {"application/apply-patch+yaml"}


async def test_a_kind_that_is_not_known_is_left_to_kubectl(runs: ClusterRuns) -> None:
    with pytest.raises(BadInputError, match=r"Widget w: .* use kubectl"):
        await runs.apply({"apiVersion": "shop.example/v1", "kind": "Widget", "metadata": {"name": "w"}})


async def test_pods_are_listed_with_their_part_and_logs_are_read_by_line(runs: ClusterRuns, answers: Answers) -> None:
    pod = {
        "metadata": {"name": "run-judge-0", "labels": {"app.kubernetes.io/component": "judge"}},
        "spec": {"containers": [{"name": "judge"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    answers.add("GET", PODS, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]})
    (found,) = await runs.pods(evalrun())
    assert found == RunPod("run-judge-0", "judge", ("judge",), ready=True)
    assert answers.asked[0].url.params["labelSelector"] == f"evalrun.dev/run-uid={UID}"
    answers.add("GET", f"{PODS}/run-judge-0/log", b"one\ntwo\n")
    assert [line async for line in runs.log(found, "judge", follow=False, tail=2)] == ["one", "two"]
    assert answers.asked[1].url.params["tailLines"] == "2"


async def test_missing_right_for_exec_is_named(runs: ClusterRuns, answers: Answers) -> None:
    answers.refuse("GET", f"{PODS}/run-aggregator-0/exec", 403, "pods/exec is forbidden")
    pod = RunPod("run-aggregator-0", "aggregator", ("aggregator",), ready=True)
    with pytest.raises(BadInputError, match=r"refused \(403\): you need the right `create` on pods/exec"):
        await runs.run_in(pod, ["python"], io.BytesIO())


async def test_missing_cluster_message_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BadInputError, match="set KUBECONFIG, or run on this machine with --local"):
        connect(None)


def reader(ready: bool) -> dict[str, Any]:
    """Return the pod that reads a volume, as the API server has it."""
    waiting = {"name": "reader", "ready": ready, "restartCount": 0, "image": "x", "imageID": "", "state": {}}
    if not ready:
        waiting["state"] = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    conditions = [{"type": "Ready", "status": str(ready)}]
    metadata = {"name": "run-results-x", "namespace": "evals", "labels": {}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "reader"}]},
        "status": {"conditions": conditions, "containerStatuses": [waiting]},
    }  # fmt: skip


def over() -> EvalRun:
    """Return a run that has ended, whose aggregator has gone."""
    return generating().generate_all().judge_all().settle().run


async def test_volume_is_read_through_a_restricted_pod_that_is_deleted_afterwards(
    runs: ClusterRuns, answers: Answers
) -> None:
    answers.add("POST", PODS, reader(ready=False))
    answers.add("GET", f"{PODS}/run-results-x", reader(ready=True))
    answers.add("DELETE", f"{PODS}/run-results-x", {"kind": "Status", "status": "Success"})
    run = over()
    async with runs.reader(run, "run-ledger-0f3b2c1a") as pod:
        assert (pod.name, pod.containers) == ("run-results-x", ("reader",))
    assert [request.method for request in answers.asked] == ["POST", "GET", "DELETE"]
    sent = json.loads(answers.asked[0].content)
    (container,) = sent["spec"]["containers"]
    assert run.status is not None
    assert container["image"] == run.status.settings["aggregatorImage"]
    (mount,) = container["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/lib/evalrun", True)
    assert sent["spec"]["volumes"] == [
        {"name": "outputs", "persistentVolumeClaim": {"claimName": "run-ledger-0f3b2c1a", "readOnly": True}}
    ]
    assert sent["metadata"]["ownerReferences"][0]["uid"] == UID  # it goes with the run at the latest
    assert names.RUN_UID_LABEL not in sent["metadata"]["labels"]  # the operator does not take it for its own
    assert sent["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert sent["spec"]["activeDeadlineSeconds"] == 900


async def test_reader_pod_that_does_not_start_is_reported_with_the_reason_and_deleted(
    answers: Answers, runs: ClusterRuns
) -> None:
    answers.add("POST", PODS, reader(ready=False))
    answers.add("GET", f"{PODS}/run-results-x", reader(ready=False))
    answers.add("DELETE", f"{PODS}/run-results-x", {"kind": "Status", "status": "Success"})
    hasty = ClusterRuns(runs._client, None, start_seconds=0.05)
    with pytest.raises(BadInputError, match="run-results-x did not start in 0 s: ErrImagePull: no such image"):
        async with hasty.reader(over(), "results"):
            raise AssertionError("it never started")
    assert answers.asked[-1].method == "DELETE"


async def test_missing_right_to_create_pods_is_named(runs: ClusterRuns, answers: Answers) -> None:
    answers.refuse("POST", PODS, 403, "pods is forbidden: User cannot create resource")
    with pytest.raises(BadInputError, match=r"creating a pod that reads claim results: .*forbidden"):
        async with runs.reader(over(), "results"):
            raise AssertionError("it was never made")
