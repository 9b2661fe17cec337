"""The spec is bounded as a whole: the rule counts at least what the JSON takes, for whatever the schema allows."""

import json
import random
from typing import Any

import pytest
from builders.operator.evalruns import largest_evalrun, spec_bytes

from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import find_problems
from evalrun_api.structural import Schema, structural_schema
from evalrun_api.v1alpha1 import EvalRun, EvalRunSpec, EvalSchedule, EvalScheduleSpec

MAX_BYTES = 64 * 1024
SCHEMA = structural_schema(EvalRun)


def json_bytes(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def random_value(schema: Schema, chance: random.Random, fill: float) -> Any:
    """Return a value that the schema's types and bounds allow; `fill` is the share of what is optional."""
    kind = schema["type"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if kind == "string":
        if "maxLength" not in schema:
            return "2026-01-31T12:00:00.123456+00:00"
        character = "x" if "pattern" in schema else "\U0001f600"
        return character * int(schema["maxLength"] * chance.random() * fill)
    if kind == "integer":
        return chance.choice([schema["minimum"], schema["maximum"]])
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "array":
        return [random_value(schema["items"], chance, fill) for _ in range(int(min(schema["maxItems"], 20) * fill))]
    if "additionalProperties" in schema:
        keys = [
            f"key-{number}" + "\u20ac" * chance.randrange(50) for number in range(int(schema["maxProperties"] * fill))
        ]
        return {key: random_value(schema["additionalProperties"], chance, fill) for key in keys}
    required = schema.get("required", ())
    return {
        name: random_value(child, chance, fill)
        for name, child in schema["properties"].items()
        if name in required or chance.random() < fill
    }


@pytest.mark.parametrize("seed", range(4))
def test_size_rule_never_underestimates_the_json(seed: int) -> None:
    chance = random.Random(seed)
    spec = random_value(SCHEMA["properties"]["spec"], chance, fill=chance.choice([0.1, 0.3, 0.6]))
    assert json_bytes(spec) <= spec_bytes({"spec": spec})


def test_size_rule_counts_little_more_than_the_json_of_the_largest_spec_takes() -> None:
    assert EvalRunSpec.MAX_BYTES is not None
    manifest = largest_evalrun(EvalRunSpec.MAX_BYTES)
    assert find_problems(manifest, place="cluster") == []
    completed = apply_defaults(SCHEMA, manifest)
    assert EvalRunSpec.MAX_BYTES - 3 < spec_bytes(completed) <= EvalRunSpec.MAX_BYTES
    assert EvalRunSpec.MAX_BYTES * 0.75 < json_bytes(completed["spec"]) <= EvalRunSpec.MAX_BYTES <= MAX_BYTES
    manifest["spec"]["datasets"][15]["systemPrompt"] += "\u20ac"
    (problem,) = find_problems(manifest, place="cluster")
    assert (problem.path, problem.message.split(":")[0]) == ("spec", "the spec is too large, at most 48 KiB as JSON")


def test_schedule_spec_is_bounded_together_with_its_template() -> None:
    assert EvalScheduleSpec.MAX_BYTES == MAX_BYTES
    rules = structural_schema(EvalSchedule)["properties"]["spec"]["x-kubernetes-validations"]
    assert rules[-1]["rule"].endswith(f" <= {MAX_BYTES}")
    assert "self.template.datasets.map(" in rules[-1]["rule"]
