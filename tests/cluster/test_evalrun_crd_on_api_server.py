"""The CRD on a real API server: taken as it is, it refuses with the very words of the offline check."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.cluster.controlplane import Answer, ControlPlane, until
from builders.operator.evalruns import (
    BAD_METADATA,
    CHANGES_AT_ANY_TIME,
    CHANGES_ONCE_STARTED,
    GOOD_METADATA,
    REFUSED,
    Refused,
    change,
    evalrun_manifest,
    largest_evalrun,
)

from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import load_manifest, schema_for
from evalrun_api.v1alpha1 import EvalRunSpec

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "k8s" / "samples").glob("*.yaml"))
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD_NAME = "evalruns.evalrun.dev"
RUNS = "/apis/evalrun.dev/v1alpha1/namespaces/default/evalruns"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> ControlPlane:
    """The API server with `k8s/crd.yaml` applied and served."""
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "k8s" / "crd.yaml"))
    control_plane.kubectl("wait", f"crd/{CRD_NAME}", "--for=condition=Established", "--timeout=100s")
    until(lambda: is_explained(control_plane), "the CRD in the API server's discovery and OpenAPI")
    return control_plane


def is_explained(plane: ControlPlane) -> bool:
    try:
        return "FIELDS" in plane.kubectl("explain", "er.spec")
    except RuntimeError:  # discovery and OpenAPI follow the CRD after a moment
        return False


def created_dry(api: ControlPlane, manifest: dict[str, Any]) -> Answer:
    return api.request("POST", RUNS, manifest, dryRun="All", fieldValidation="Strict")


@pytest.fixture
def started(api: ControlPlane) -> Iterator[str]:
    path = f"{RUNS}/started"
    made = api.request("POST", RUNS, evalrun_manifest({"metadata.name": "started"}))
    assert made.status == 201, made.message
    words = {"phase": "Generating", "reason": "Generating", "progress": "3/164"}
    status = {"status": {"startTime": "2026-01-31T12:00:00Z", **words}}
    answer = api.request("PATCH", f"{path}/status", status, MERGE)
    assert answer.status == 200, answer.message
    yield path
    api.request("DELETE", path)


def test_no_rule_is_too_costly_and_the_schema_is_structural(api: ControlPlane) -> None:
    crd = api.request("GET", f"{CRDS}/{CRD_NAME}").body
    conditions = {condition["type"]: condition for condition in crd["status"]["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert conditions.get("NonStructuralSchema", {}).get("status", "False") == "False"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_is_accepted_with_the_same_defaults_as_offline(api: ControlPlane, sample: Path) -> None:
    answer = created_dry(api, yaml.safe_load(sample.read_text(encoding="utf-8")))
    assert answer.status == 201, answer.message
    offline = apply_defaults(schema_for("cluster"), yaml.safe_load(sample.read_text(encoding="utf-8")))
    assert answer.body["spec"] == offline["spec"]
    assert load_manifest(sample, place="cluster").spec.to_wire() == answer.body["spec"]


def test_kubectl_applies_a_sample_without_a_warning(api: ControlPlane) -> None:
    assert api.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "k8s/samples/evalrun-phase0.yaml")).endswith(
        "created (server dry run)\n"
    )


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_each_kind_of_bad_run_is_refused_with_advice(api: ControlPlane, case: Refused) -> None:
    answer = created_dry(api, case.manifest)
    assert answer.status in {400, 422}, answer.body
    assert (case.server_says or case.says) in answer.message
    if not case.local_only and case.path != "spec":
        fields = {cause.get("field") for cause in answer.body.get("details", {}).get("causes", ())}
        assert (case.server_path or case.path) in fields, answer.message


def test_deeply_nested_affinity_is_not_stored(api: ControlPlane) -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"a": deep}
    manifest = evalrun_manifest({"spec.placement": {"aggregator": {"affinity": deep}}, "spec.suspend": True})
    assert created_dry(api, manifest).status in {400, 422}  # strict, as kubectl asks
    lenient = api.request("POST", RUNS, manifest, dryRun="All", fieldValidation="Ignore")
    assert lenient.body["spec"]["placement"]["aggregator"]["affinity"] == {}


def test_largest_spec_is_stored_and_a_byte_more_is_refused(api: ControlPlane) -> None:
    assert EvalRunSpec.MAX_BYTES is not None
    manifest = largest_evalrun(EvalRunSpec.MAX_BYTES)
    answer = created_dry(api, manifest)
    assert answer.status == 201, answer.message
    assert len(json.dumps(answer.body["spec"], separators=(",", ":"), ensure_ascii=False).encode()) <= 64 * 1024
    manifest["spec"]["datasets"][15]["systemPrompt"] += "xxx"
    assert "the spec is too large" in created_dry(api, manifest).message


@pytest.mark.parametrize("case", BAD_METADATA, ids=lambda case: case.name)
def test_bad_labels_and_annotations_are_refused_as_offline(api: ControlPlane, case: Refused) -> None:
    answer = created_dry(api, case.manifest)
    assert answer.status == 422, answer.body
    assert str(case.server_says) in answer.message


@pytest.mark.parametrize("metadata", GOOD_METADATA)
def test_good_labels_and_annotations_are_accepted_as_offline(
    api: ControlPlane, metadata: dict[str, dict[str, str]]
) -> None:
    answer = created_dry(api, evalrun_manifest({f"metadata.{field}": notes for field, notes in metadata.items()}))
    assert answer.status == 201, answer.message


@pytest.mark.parametrize(("field", "path", "value"), CHANGES_ONCE_STARTED)
def test_a_started_run_keeps_its_spec(api: ControlPlane, started: str, field: str, path: str, value: object) -> None:
    patch: dict[str, Any] = api.request("GET", started).body
    change(patch, path, value)
    answer = api.request("PUT", started, patch)
    assert answer.status == 422
    assert f"spec.{field}: " in answer.message
    assert f"the run has started: {field} can no longer change" in answer.message


@pytest.mark.parametrize(("path", "value"), CHANGES_AT_ANY_TIME)
def test_run_update_of_changeable_field_is_accepted(api: ControlPlane, started: str, path: str, value: object) -> None:
    patch: dict[str, Any] = {}
    change(patch, path, value)
    assert api.request("PATCH", started, patch, MERGE).status == 200


def test_a_run_that_has_not_started_may_change(api: ControlPlane) -> None:
    path = f"{RUNS}/waiting"
    assert api.request("POST", RUNS, evalrun_manifest({"metadata.name": "waiting"})).status == 201
    answer = api.request("PATCH", path, {"spec": {"protocol": {"maxNewTokens": 512}}}, MERGE)
    api.request("DELETE", path)
    assert answer.status == 200, answer.message


def test_status_of_a_started_run_can_be_updated(api: ControlPlane, started: str) -> None:
    condition = {
        "type": "Complete", "status": "True", "reason": "Finished", "message": "",
        "lastTransitionTime": "2026-01-31T13:00:00Z",
    }  # fmt: skip
    answer = api.request("PATCH", f"{started}/status", {"status": {"conditions": [condition]}}, MERGE)
    assert answer.status == 200, answer.message
    assert answer.body["status"]["conditions"] == [condition]


def test_kubectl_get_prints_the_main_columns(api: ControlPlane, started: str) -> None:
    del started
    header, row = api.kubectl("get", "er").splitlines()
    assert header.split() == ["NAME", "PHASE", "REASON", "MODEL", "PROGRESS", "PASS@1", "NOT-JUDGED", "AGE"]
    assert row.split()[:5] == ["started", "Generating", "Generating", "Qwen/Qwen2.5-Coder-7B-Instruct", "3/164"]
    wide = api.kubectl("get", "er", "-o", "wide").splitlines()[0].split()
    assert {"TOKENS/S", "PROBLEMS/S", "GPU-S/SOLVED", "ATTEMPTS"} <= set(wide)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("er", "One evaluation of one model"),
        ("er.spec.protocol.temperature", 'Sampling temperature in quotes, "0.0" (greedy)'),
        ("er.spec.rollout.loadFormat", "dummy loads none: the answers are noise"),
        ("er.status.conditions", "GatePassed"),
    ],
)
def test_kubectl_explains_each_field(api: ControlPlane, field: str, says: str) -> None:
    assert says in " ".join(api.kubectl("explain", field).split())
