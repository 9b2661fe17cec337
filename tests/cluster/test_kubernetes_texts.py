"""What Kubernetes says of pods without a node and of refused requests: the texts and causes that the operator reads.

A new version of Kubernetes fails the first test. Then look at the others' texts again, and write the version there and
in the modules `kube_scheduler_texts` and `kube_apiserver_texts`.
"""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from builders.cluster.controlplane import Answer, ControlPlane, until
from builders.operator.running_operator import make_namespace, remove_namespace
from lightkube import ApiError

from evalrun_cluster.client import translate_error
from evalrun_cluster.errors import NamespaceGoneError, RefusedError
from evalrun_operator.policies.kube_apiserver_texts import OTHERWISE, REMEDIES, find_remedy
from evalrun_operator.policies.kube_scheduler_texts import lacks_room
from evalrun_operator.policies.troubles import TroubleKind, classify_trouble

NAMESPACE = "kubernetes-texts"
VERSION = "v1.36."


def await_account(plane: ControlPlane, namespace: str) -> None:
    """Wait for the namespace's account, without which no pod is let in."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    until(lambda: plane.request("GET", path).status == 200, "the namespace's account")


@pytest.fixture(scope="module")
def plane(nodes: ControlPlane) -> Iterator[ControlPlane]:
    make_namespace(nodes, NAMESPACE)
    await_account(nodes, NAMESPACE)
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    nodes.request("PATCH", f"/api/v1/namespaces/{NAMESPACE}", label, content_type="application/merge-patch+json")
    yield nodes
    nodes.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods", gracePeriodSeconds="0")  # no node ends them
    remove_namespace(nodes, NAMESPACE)


def pod(name: str, namespace: str = NAMESPACE, *, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], **spec},
    }  # fmt: skip


def create(plane: ControlPlane, item: dict[str, Any]) -> Answer:
    return plane.request("POST", f"/api/v1/namespaces/{item['metadata']['namespace']}/pods", item)


def unscheduled(plane: ControlPlane, name: str) -> dict[str, str]:
    told: list[dict[str, str]] = []

    def is_told() -> bool:
        status = plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}").body.get("status", {})
        told.extend(one for one in status.get("conditions", ()) if one["type"] == "PodScheduled" and one.get("message"))
        return bool(told)

    until(is_told, f"the scheduler's word on {name}")
    return told[0]


def error_of(answer: Answer) -> Exception:
    request = httpx2.Request("POST", "https://api")
    response = httpx2.Response(answer.status, json=answer.body, request=request)
    return translate_error(ApiError(request=request, response=response), "creating an object")


def test_kubernetes_version_is_the_one_with_known_messages(plane: ControlPlane) -> None:
    assert plane.request("GET", "/version").body["gitVersion"].startswith(VERSION)


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("no-room", {"gpus": 99}, TroubleKind.NO_NODE),
        ("no-such-node", {"nodeSelector": {"pool": "nowhere"}}, TroubleKind.NO_NODE),
        (
            "no-claim",
            {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "none"}}]},
            TroubleKind.LASTING,
        ),
    ],
)
def test_scheduler_text_distinguishes_missing_room_from_missing_claim(
    plane: ControlPlane, name: str, fields: dict[str, Any], kind: TroubleKind
) -> None:
    assert create(plane, pod(name, **fields)).status == 201
    told = unscheduled(plane, name)
    assert classify_trouble(told["reason"], told["message"]).kind is kind, told
    assert lacks_room(told["message"]) is (kind is not TroubleKind.LASTING), told


def test_pod_that_fits_no_full_node_is_classified_as_missing_room(plane: ControlPlane) -> None:
    nodes = plane.request("GET", "/api/v1/nodes").body["items"]
    for number in range(len(nodes) + 1):
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "40"}}}
        assert create(plane, pod(f"large-{number}", containers=[container])).status == 201

    def words() -> list[dict[str, str]]:
        found = plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods").body["items"]
        ours = [one for one in found if one["metadata"]["name"].startswith("large-")]
        return [
            condition
            for one in ours
            for condition in one.get("status", {}).get("conditions", ())
            if condition["type"] == "PodScheduled" and condition.get("message")
        ]

    until(lambda: bool(words()), "a pod without room")
    told = words()[0]
    assert classify_trouble(told["reason"], told["message"]).kind is TroubleKind.ROOM, told


def test_a_request_above_a_quota_is_refused_with_advice_about_quotas(plane: ControlPlane) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "0"}}}
    assert plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", quota).status == 201
    path, item = f"/api/v1/namespaces/{NAMESPACE}/configmaps", {"metadata": {"generateName": "x-"}}
    answers: list[Answer] = []

    def is_refused() -> bool:
        answers.append(plane.request("POST", path, item))
        return answers[-1].status == 403

    until(is_refused, "the quota")
    assert type(error_of(answers[-1])) is RefusedError
    assert find_remedy(answers[-1].message) == dict(REMEDIES)["exceeded quota"], answers[-1].message


def test_a_missing_right_is_refused_with_advice_about_rights(plane: ControlPlane) -> None:
    with pytest.raises(RuntimeError) as refused:
        plane.kubectl("--as=nobody", "create", "configmap", "x", "--namespace", NAMESPACE)
    assert find_remedy(str(refused.value)) == dict(REMEDIES)["cannot"]


def test_pod_below_the_security_level_is_refused_with_advice_about_security(plane: ControlPlane) -> None:
    make_namespace(plane, "restricted-texts")
    await_account(plane, "restricted-texts")
    answer = create(plane, pod("too-free", "restricted-texts", hostNetwork=True))
    remove_namespace(plane, "restricted-texts")
    assert answer.status == 403
    assert find_remedy(answer.message) == dict(REMEDIES)["violates PodSecurity"], answer.message


def test_terminating_namespace_is_recognized_by_its_cause(plane: ControlPlane) -> None:
    make_namespace(plane, "ending-texts")
    held = {"metadata": {"name": "held", "finalizers": ["example.test/keep"]}}
    assert plane.request("POST", "/api/v1/namespaces/ending-texts/configmaps", held).status == 201
    assert plane.request("DELETE", "/api/v1/namespaces/ending-texts").status == 200
    answer = create(plane, pod("late", "ending-texts"))
    assert isinstance(error_of(answer), NamespaceGoneError), answer.body
    assert find_remedy(answer.message) == OTHERWISE
    free = {"metadata": {"finalizers": None}}
    path = "/api/v1/namespaces/ending-texts/configmaps/held"
    assert plane.request("PATCH", path, free, content_type="application/merge-patch+json").status == 200
