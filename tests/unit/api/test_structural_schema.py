"""The converter lets through what it knows, and says where it met anything else."""

from datetime import timedelta
from typing import Annotated, Any

import jsonschema
import pytest
from builders.operator.evalruns import REFUSED, evalrun_manifest
from pydantic import BaseModel, Field, create_model

from evalrun_api.api_model import PLACE, VALIDATIONS, ApiModel, Rule
from evalrun_api.checks import apply_defaults, structural_problems
from evalrun_api.crd import COLUMNS, evalrun_crd
from evalrun_api.structural import Schema, UnsupportedSchemaError, structural_schema
from evalrun_api.v1alpha1 import REASONS, ConditionType, EvalRun, EvalRunSpec, EvalRunStatus, Reason

CRD = evalrun_crd()
VERSION = CRD["spec"]["versions"][0]
SCHEMA: Schema = VERSION["schema"]["openAPIV3Schema"]


class Loose(BaseModel):
    x: int = Field(description="Forbids nothing.")


class Undescribed(ApiModel):
    x: int


def object_with(annotation: Any) -> type[BaseModel]:
    spec = create_model("Spec", __base__=ApiModel, field=(annotation, Field(description="The field.")))
    return create_model(
        "Thing",
        __base__=ApiModel,
        api_version=(str, Field(description="Version.")),
        kind=(str, Field(description="Kind.")),
        metadata=(dict[str, str], Field(description="Metadata.")),
        spec=(spec, Field(description="The spec.")),
    )


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (float, "spec.field: type 'number' has no place in a CRD"),
        (set[int], "spec.field: uniqueItems is not known for type array"),
        (tuple[int, int], "spec.field: prefixItems is not known for type array"),
        (int | str, "spec.field: a union of types has no place in a CRD"),
        (timedelta, "spec.field: format duration is not known"),
        (Any, "spec.field: type None has no place in a CRD"),
        (str, "spec.field: a text without max_length"),
        (list[int], "spec.field: a list without max_length"),
        (dict[str, int], "spec.field: a map without max_length"),
        (Annotated[list[str], Field(max_length=3)], "spec.field[]: a text without max_length"),
        (Annotated[dict[str, str], Field(max_length=3)], "spec.field{}: a text without max_length"),
        (Annotated[int, Field(gt=0)], "spec.field: exclusiveMinimum is not known for type integer"),
        (Annotated[int, Field(multiple_of=2)], "spec.field: multipleOf is not known for type integer"),
        (Loose, "spec.field: a model must forbid unknown fields"),
        (Undescribed, "spec.field.x: has no description for kubectl explain"),
    ],
)
def test_unsupported_schema_is_refused_with_its_path(annotation: Any, says: str) -> None:
    with pytest.raises(UnsupportedSchemaError) as caught:
        structural_schema(object_with(annotation))
    assert str(caught.value).startswith(says)


def test_an_optional_field_is_absent_and_not_null() -> None:
    schema = structural_schema(object_with(Annotated[str, Field(max_length=5)] | None))
    field = schema["properties"]["spec"]["properties"]["field"]
    assert field == {"type": "string", "description": "The field.", "maxLength": 5}


def test_rules_of_a_type_and_of_its_use_are_both_kept() -> None:
    number = Annotated[int, Rule("self > 0", "write more than 0")]
    schema = structural_schema(object_with(Annotated[number, Rule("self < 9", "write less than 9")] | None))
    rules = schema["properties"]["spec"]["properties"]["field"][VALIDATIONS]
    assert [rule["rule"] for rule in rules] == ["self > 0", "self < 9"]


def nodes(schema: Schema, path: str = "") -> list[tuple[str, Schema]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += nodes(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            found += nodes(schema[name], f"{path}[]")
    return found


def test_the_crd_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert not {"$ref", "anyOf", "allOf", "oneOf", "const", "title", PLACE} & set(node), path
        assert all(set(rule) <= {"rule", "message", "fieldPath"} for rule in node.get(VALIDATIONS, ())), path


def test_every_integer_of_the_spec_is_bounded() -> None:
    for path, node in nodes(SCHEMA["properties"]["spec"], "spec"):
        if node["type"] == "integer":
            assert {"minimum", "maximum"} <= set(node), path


def test_no_field_has_a_name_that_yaml_reads_as_a_boolean() -> None:
    names = {name for _, node in nodes(SCHEMA) for name in node.get("properties", {})}
    assert not {name.lower() for name in names} & {"n", "y", "on", "off", "yes", "no", "true", "false"}


def test_an_object_default_spells_out_every_field_that_has_a_default() -> None:
    """The API server checks a default against the rules as it is written, before the inner defaults are applied."""
    for path, node in nodes(SCHEMA):
        if node["type"] == "object" and "default" in node:
            with_default = {name for name, child in node.get("properties", {}).items() if "default" in child}
            assert with_default <= set(node["default"]), path


def test_printer_columns_name_existing_scalar_fields() -> None:
    for name, kind, path, _, _ in COLUMNS:
        if path.startswith((".status", ".spec")):
            node = SCHEMA
            for part in path.removeprefix(".").split("."):
                node = node["properties"][part]
            assert node["type"] == kind, name


def test_crd_has_short_name_er_and_a_status_subresource() -> None:
    assert CRD["spec"]["names"]["shortNames"] == ["er"]
    assert VERSION["subresources"] == {"status": {}}


def test_models_survive_a_round_trip() -> None:
    run = EvalRun.from_wire(apply_defaults(SCHEMA, evalrun_manifest(rollout=True)))
    assert EvalRunSpec.model_validate(run.spec.to_wire()) == run.spec
    assert run.spec.to_wire() == apply_defaults(SCHEMA, evalrun_manifest(rollout=True))["spec"]


def test_a_full_status_fits_the_schema() -> None:
    condition = {
        "type": "Complete", "status": "True", "reason": "Finished", "message": "", "observedGeneration": 2,
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    interval = {"low": "0.81", "high": "0.91"}
    status = EvalRunStatus.model_validate(
        {
            "observedGeneration": 2, "conditions": [condition], "phase": "Succeeded", "attempts": 1,
            "startTime": "2026-01-31T11:00:00+00:00", "datasets": [
                {"name": "humaneval", "total": 164, "generated": 164, "judged": 164, "acceptedAt1": "0.872",
                 "interval": interval}
            ],
            "acceptedAt1": "87.2 %",
        }
    ).to_wire()  # fmt: skip
    assert list(structural_problems(SCHEMA["properties"]["status"], status)) == []


def test_every_condition_has_documented_reasons_and_no_reason_is_left_over() -> None:
    assert set(REASONS) == set(ConditionType)
    assert frozenset().union(*REASONS.values()) == set(Reason)


def test_the_walker_refuses_exactly_what_jsonschema_refuses() -> None:
    """Our reading of the schema against an independent one, over every manifest of the table."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for case in REFUSED:
        if case.name in {
            "newline at a name's end",
            "image with a line break",
        }:  # there jsonschema is wrong: Python's `$` lets a last newline be
            continue
        value = apply_defaults(SCHEMA, case.manifest)
        ours = [
            problem
            for problem in structural_problems(SCHEMA, value)
            if "is no field" not in problem.message and "listed twice" not in problem.message
        ]  # which plain JSON Schema cannot see
        assert bool(ours) == (not validator.is_valid(value)), (case.name, ours)
