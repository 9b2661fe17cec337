"""Every kind of bad EvalRun is refused offline, by the CRD's own schema and rules, with advice on what to write."""

from typing import Any

import pytest
from builders.operator.evalruns import REFUSED, Refused, evalrun_manifest

from evalrun_api.api_model import VALIDATIONS
from evalrun_api.manifest import find_problems, schema_for
from evalrun_api.structural import Schema

TOLD_TWICE = {"dataset twice", "no samples"}
"""A bound, or the list's own uniqueness, says it as well as a rule."""


def test_valid_manifest_has_no_problems_in_either_place() -> None:
    for rollout in (False, True):
        assert find_problems(evalrun_manifest(rollout=rollout), place="cluster") == []
        assert find_problems(evalrun_manifest(rollout=rollout), place="machine") == []


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_each_mistake_is_refused_with_its_reason_only(case: Refused) -> None:
    problems = find_problems(case.manifest, place="cluster")
    matching = [problem for problem in problems if problem.path == case.path and case.says in problem.message]
    assert matching, problems
    assert len(problems) == (2 if case.name in TOLD_TWICE else 1), problems


@pytest.mark.parametrize("case", [case for case in REFUSED if case.cluster_only], ids=lambda case: case.name)
def test_cluster_only_refusals_do_not_apply_on_one_machine(case: Refused) -> None:
    assert find_problems(case.manifest, place="machine") == []


@pytest.mark.parametrize("case", [case for case in REFUSED if not case.cluster_only], ids=lambda case: case.name)
def test_other_refusals_apply_on_one_machine_too(case: Refused) -> None:
    assert find_problems(case.manifest, place="machine") == find_problems(case.manifest, place="cluster")


def test_all_mistakes_of_a_manifest_are_found_at_once() -> None:
    manifest = evalrun_manifest(
        {
            "spec.datasets.0.source": "builtin:nothing",
            "spec.protocol": {"samples": 4, "k": [9], "temperature": 0.0, "seedz": 1},
            "spec.endpoints.0.url": "vllm",
            "spec.gates": [{"baseline": "b", "dataset": "other"}],
        }
    )
    assert {problem.path for problem in find_problems(manifest, place="cluster")} == {
        "spec.datasets[0].source",
        "spec.protocol.temperature",  # a number; the rules that read it are passed over, the others are not
        "spec.protocol.seedz",
        "spec.protocol.samples",
        "spec.protocol.k",
        "spec.endpoints[0].url",
        "spec.gates",
    }


def test_every_refusal_comes_from_a_rule_that_was_evaluated() -> None:
    for case in REFUSED:
        for problem in find_problems(case.manifest, place="cluster"):
            assert "could not be evaluated" not in problem.message, case.name


def test_item_of_the_wrong_type_is_reported_once() -> None:
    (problem,) = find_problems(evalrun_manifest({"spec.endpoints.0": "http://vllm:8000"}), place="cluster")
    assert (problem.path, problem.message) == ("spec.endpoints[0]", '"http://vllm:8000" is not a mapping')


def test_every_rule_is_broken_by_a_case_of_the_table() -> None:
    said = {problem.message for case in REFUSED for problem in find_problems(case.manifest, place="cluster")}
    unbroken = {rule["message"] for rule in rules_of(schema_for("cluster"))} - said
    assert unbroken == set()


def rules_of(schema: Schema) -> list[dict[str, Any]]:
    found = list(schema.get(VALIDATIONS, ()))
    for child in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            found.extend(rules_of(child))
    return found
