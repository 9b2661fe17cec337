"""The allow-lists as the operator holds runs and schedules to them, where the API server has no policy for it."""

from typing import Any

import pytest
import yaml
from builders.cluster.chart import ROOT
from builders.operator.allow_list_cases import ALLOWED, BEYOND, OUTPUT, REGISTRY, TRUSTED, WITHIN, run_of
from builders.operator.schedule_world import BEGIN, evalschedule
from builders.operator.world import World, evalrun, operator_settings
from pydantic import ValidationError

from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import schema_for
from evalrun_api.v1alpha1 import ConditionType, EvalRun, ScheduleCondition, schedule_condition
from evalrun_operator.policies.allow_lists import REFUSED, describe_refusal, find_refusal, refusal_expression
from evalrun_operator.schedules.decision import ObservedSchedule
from evalrun_operator.schedules.reconcile import decide

DEFAULTS: dict[str, list[str]] = yaml.safe_load((ROOT / "charts" / "evalrun" / "values.yaml").read_text())["admission"][
    "allowed"
]
OF_ALL = {**DEFAULTS, **ALLOWED, "images": [f"{REGISTRY}/"]}
LISTS: dict[str, dict[str, list[str]]] = {"": OF_ALL, "trusted": {**OF_ALL, **TRUSTED}}


def spec_of(changes: dict[str, Any]) -> dict[str, Any]:
    return EvalRun.from_wire(apply_defaults(schema_for("cluster"), run_of(changes))).spec.to_wire()


@pytest.mark.parametrize(("changes", "named"), BEYOND)
def test_a_spec_beyond_a_list_is_refused_with_its_name(changes: dict[str, Any], named: str) -> None:
    assert find_refusal(spec_of(changes), "evals", LISTS) == describe_refusal(named, OF_ALL[named])
    assert find_refusal(spec_of(changes), "evals", {}) == ""


@pytest.mark.parametrize("changes", WITHIN)
def test_a_spec_within_the_lists_is_allowed(changes: dict[str, Any]) -> None:
    assert find_refusal(spec_of(changes), "evals", LISTS) == ""


def test_a_namespaces_own_lists_replace_the_others() -> None:
    wants = spec_of(
        {"spec.placement": {"sandbox": {"priorityClassName": "batch", "tolerations": [{"operator": "Exists"}]}}}
    )
    assert find_refusal(wants, "trusted", LISTS) == ""
    assert "admission.allowed.priorityClasses " in find_refusal(wants, "evals", LISTS)


@pytest.mark.parametrize("name", REFUSED)
def test_message_of_the_policy_equals_that_of_the_operator(name: str) -> None:
    pieces = describe_refusal(name, []).split("none")
    assert all(f'"{piece}"' in refusal_expression(name) for piece in pieces)


def test_the_chart_has_every_list() -> None:
    assert DEFAULTS.keys() == REFUSED.keys()


def test_a_run_beyond_the_lists_is_refused_before_anything_is_made() -> None:
    settings = operator_settings(allowed={"": DEFAULTS})
    world = World(run=evalrun({"spec.serviceAccountName": "cluster-admin"}), settings=settings).settle()
    assert world.objects == {}
    accepted = world.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.message) == ("False", describe_refusal("serviceAccounts", []))


def test_a_run_that_has_started_is_not_held_to_shorter_lists() -> None:
    world = World(run=evalrun({"spec.serviceAccountName": "s3"}), settings=operator_settings()).settle()
    world.settings = operator_settings(allowed={"": DEFAULTS})
    assert world.settle().condition(ConditionType.ACCEPTED).status == "True"


def test_schedule_beyond_the_lists_starts_no_run() -> None:
    schedule = evalschedule({"spec.template.output": OUTPUT})
    refused = decide(schedule, ObservedSchedule(refusal=describe_refusal("buckets", ["s3://x"])), BEGIN)
    accepted = schedule_condition(refused.status, ScheduleCondition.ACCEPTED)
    assert accepted is not None
    assert "admission.allowed.buckets " in accepted.message
    assert (refused.make_job, refused.start, refused.status.next_schedule_time) == (None, (), None)


@pytest.mark.parametrize(
    ("lists", "wrong"),
    [({"evals": DEFAULTS}, "under the empty name"), ({"": {"images": []}}, "lacks the lists backends, buckets")],
)
def test_lists_with_a_hole_are_refused(lists: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        operator_settings(allowed=lists)
