"""Every kind of bad EvalSchedule is refused offline, by the CRD's own schema and rules, with advice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from builders.operator.evalschedules import REFUSED_SCHEDULES, RefusedSchedule, evalschedule_manifest

from evalrun_api.checks import apply_defaults
from evalrun_api.crd import SCHEDULE_COLUMNS, evalschedule_crd
from evalrun_api.manifest import find_problems, load_schedules, schema_for
from evalrun_api.structural import Schema
from evalrun_api.v1alpha1 import SCHEDULE_REASONS, EvalSchedule, ScheduleCondition, ScheduleReason
from evalrun_runtime.exits import BadInputError

ROOT = Path(__file__).parents[3]


def test_the_valid_manifest_is_valid() -> None:
    assert find_problems(evalschedule_manifest(), place="cluster") == []


@pytest.mark.parametrize("case", REFUSED_SCHEDULES, ids=lambda case: case.name)
def test_each_kind_is_refused_for_its_reason(case: RefusedSchedule) -> None:
    problems = find_problems(case.manifest, place="cluster")
    assert [problem.path for problem in problems if case.says in problem.message] == [case.path], problems


def test_every_rule_of_a_schedule_is_broken_by_a_case_of_the_table() -> None:
    said = {problem.message for case in REFUSED_SCHEDULES for problem in find_problems(case.manifest, place="cluster")}
    known = {rule["message"] for rule in rules_of(schema_for("cluster"))}
    own = {rule["message"] for rule in rules_of(schema_for("cluster", "EvalSchedule"))} - known
    assert own - said == set()


def rules_of(schema: Schema) -> Iterator[dict[str, str]]:
    yield from schema.get("x-kubernetes-validations", ())
    for child in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(child, dict):
            yield from rules_of(child)


def test_schedule_defaults_match_those_of_a_cronjob() -> None:
    manifest = apply_defaults(schema_for("cluster", "EvalSchedule"), evalschedule_manifest())
    spec = EvalSchedule.from_wire(manifest).spec
    assert (spec.concurrency_policy, spec.suspend, spec.starting_deadline_seconds) == ("Forbid", False, None)
    assert (spec.successful_runs_history_limit, spec.failed_runs_history_limit) == (3, 1)
    assert (spec.checkpoints.policy, spec.checkpoints.max_per_tick) == ("Latest", 4)


def test_the_template_has_every_field_of_a_run_but_the_models_path() -> None:
    run, schedule = schema_for("cluster"), schema_for("cluster", "EvalSchedule")
    spec, template = run["properties"]["spec"], schedule["properties"]["spec"]["properties"]["template"]
    assert template["properties"].keys() == spec["properties"].keys()
    assert "path" not in template["properties"]["model"]["properties"]
    made = "the spec is too large"  # from the fields, of which a template lacks one
    rules = [rule["rule"] for rule in template["x-kubernetes-validations"] if not rule["message"].startswith(made)]
    of_a_run = ("LastGood", "a LoRA adapter", made)
    inherited = [rule["rule"] for rule in spec["x-kubernetes-validations"] if not rule["message"].startswith(of_a_run)]
    assert inherited == rules[: len(rules) - 2]


def test_every_reason_belongs_to_a_condition() -> None:
    assert SCHEDULE_REASONS.keys() == set(ScheduleCondition)
    assert set().union(*SCHEDULE_REASONS.values()) == set(ScheduleReason)


def test_columns_show_fields_that_are_there() -> None:
    schema = evalschedule_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name, _, path, _, _ in SCHEDULE_COLUMNS:
        node = schema
        for part in path.strip(".").split("."):
            if part == "metadata":
                break
            node = node["properties"].get(part)
            assert node is not None, f"{name}: {path}"


def test_a_file_is_read_with_each_problem_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(yaml.safe_dump_all([{"kind": "Secret"}, evalschedule_manifest()]))
    bad.write_text(yaml.safe_dump(evalschedule_manifest({"spec.schedule": "at night, please"})))
    assert [schedule.metadata.name for schedule in load_schedules(good)] == ["nightly"]
    with pytest.raises(BadInputError, match=r"bad.yaml: EvalSchedule nightly: spec.schedule: write five fields"):
        load_schedules(bad)


def test_the_sample_is_valid() -> None:
    (schedule,) = load_schedules(ROOT / "k8s" / "samples" / "schedules" / "nightly.yaml")
    assert schedule.spec.template.rollout is not None
