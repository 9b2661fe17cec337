"""Once the run has started its spec stands, but for three fields."""

import pytest
from builders.operator.evalruns import CHANGES_AT_ANY_TIME, CHANGES_ONCE_STARTED, change, evalrun_manifest

from evalrun_api.api_model import VALIDATIONS
from evalrun_api.cel_rules import holds
from evalrun_api.checks import Value, apply_defaults
from evalrun_api.crd import evalrun_crd
from evalrun_api.v1alpha1 import MUTABLE_FIELDS, EvalRunSpec

SCHEMA = evalrun_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
TRANSITIONS = [rule for rule in SCHEMA[VALIDATIONS] if "oldSelf" in rule["rule"]]
STARTED = {"startTime": "2026-01-31T12:00:00Z", "attempts": 0}


def refused_fields(before: Value, after: Value) -> list[str]:
    before, after = apply_defaults(SCHEMA, before), apply_defaults(SCHEMA, after)
    return [rule["fieldPath"] for rule in TRANSITIONS if not holds(rule["rule"], after, before)]


@pytest.mark.parametrize(("field", "path", "value"), CHANGES_ONCE_STARTED)
def test_a_started_run_keeps_its_spec(field: str, path: str, value: object) -> None:
    before = {**evalrun_manifest(), "status": STARTED}
    after = {**evalrun_manifest(), "status": STARTED}
    change(after, path, value)
    assert refused_fields(before, after) == [f".spec.{field}"]
    assert refused_fields(after, before) == [f".spec.{field}"]


@pytest.mark.parametrize("status", [None, {"phase": "Pending"}])
def test_a_run_that_has_not_started_may_change(status: Value) -> None:
    before = evalrun_manifest({} if status is None else {"status": status})
    after = evalrun_manifest({"spec.model.path": "another/model", "spec.gates": [{"baseline": "b", "dataset": "d"}]})
    assert refused_fields(before, after) == []


@pytest.mark.parametrize(("path", "value"), CHANGES_AT_ANY_TIME)
def test_immutability_allows_changeable_fields(path: str, value: object) -> None:
    before = {**evalrun_manifest(), "status": STARTED}
    after = {**evalrun_manifest(), "status": STARTED}
    change(after, path, value)
    assert refused_fields(before, after) == []


def test_every_immutable_field_of_the_spec_has_a_rule() -> None:
    fields = {str(field.alias) for field in EvalRunSpec.model_fields.values()}
    assert {rule["fieldPath"].removeprefix(".spec.") for rule in TRANSITIONS} == fields - MUTABLE_FIELDS


def test_swapping_rollout_and_endpoints_is_refused_for_both_fields() -> None:
    before = {**evalrun_manifest(), "status": STARTED}
    after = {**evalrun_manifest(rollout=True), "status": STARTED}
    assert refused_fields(before, after) == [".spec.rollout", ".spec.endpoints"]
