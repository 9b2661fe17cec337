"""What the release before wrote or was told is taken by this one. `tools/archive_formats.py` makes the archive."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import archive_formats
import jsonschema
import pytest

BEFORE: dict[str, Any] = json.loads(archive_formats.CONTRACTS.read_text())
LEAST, MOST = ("minimum", "minLength", "minItems"), ("maximum", "maxLength", "maxItems")
Field = Mapping[str, Any]


def list_broken_fields(before: Mapping[str, Field], now: Mapping[str, Field]) -> list[str]:
    """Return the fields of stored objects that the present CRDs would drop or refuse."""
    broken = [f"{path} is gone" for path in before if path not in now]
    for path, field in now.items():
        if path not in before:
            parent = path.rpartition(".")[0]
            if field["required"] and "default" not in field and parent in before:
                broken.append(f"{path} is new and required")
            continue
        broken += [f"{path}: {reason}" for reason in list_narrowed_bounds(before[path], field)]
    return broken


def list_narrowed_bounds(before: Field, now: Field) -> list[str]:
    reasons = ["another type"] if before.get("type") != now.get("type") else []
    if "enum" in now and not set(before.get("enum", [None])) <= set(now["enum"]):
        reasons.append("fewer values")
    if now.get("pattern") not in (None, before.get("pattern")):
        reasons.append("another pattern")
    if now["required"] and not before["required"] and "default" not in now:
        reasons.append("required")
    reasons += [f"a higher {key}" for key in LEAST if key in now and now[key] > before.get(key, float("-inf"))]
    reasons += [f"a lower {key}" for key in MOST if key in now and now[key] < before.get(key, float("inf"))]
    return reasons


def list_changed_entries(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what is gone or differs, down to the leaves. What is new breaks no caller."""
    changed = []
    for key, value in before.items():
        if key not in now:
            changed.append(f"{key} is gone")
        elif isinstance(value, Mapping):
            changed += [f"{key}/{each}" for each in list_changed_entries(value, now[key])]
        elif value != now[key]:
            changed.append(f"{key} differs")
    return changed


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    described: dict[str, Any] = json.loads(archive_formats.render_contracts(archive_formats.describe_contracts()))
    return described


def test_stored_objects_of_the_release_before_fit_the_crds(now: dict[str, Any]) -> None:
    assert list_broken_fields(BEFORE["crd_fields"], now["crd_fields"]) == []


@pytest.mark.parametrize("kind", ["messages", "enums", "calls"])
def test_parts_of_the_release_before_are_understood_by_their_messages(now: dict[str, Any], kind: str) -> None:
    assert list_changed_entries(BEFORE[kind], now[kind]) == []


def test_settings_of_the_release_before_are_known(now: dict[str, Any]) -> None:
    gone = {service: {*names} - {*now["settings"][service]} for service, names in BEFORE["settings"].items()}
    assert {service: names for service, names in gone.items() if names} == {}


def test_values_of_the_release_before_fit_the_charts_schema() -> None:
    schema = json.loads((archive_formats.ROOT / "charts" / "evalrun" / "values.schema.json").read_text())
    jsonschema.validate(BEFORE["chart_values"], schema)


FIELD = "evalruns.spec.backoffLimit"
EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "is gone": lambda fields: fields.pop(FIELD),
    "another type": lambda fields: fields[FIELD].update(type="string"),
    "a lower maximum": lambda fields: fields[FIELD].update(maximum=fields[FIELD]["maximum"] - 1),
    "a higher minimum": lambda fields: fields[FIELD].update(minimum=fields[FIELD]["minimum"] + 1),
    "fewer values": lambda fields: fields[FIELD].update(enum=[1]),
    "is new and required": lambda fields: fields.update({"evalruns.spec.new": {"type": "string", "required": True}}),
}


@pytest.mark.parametrize("says", EDITS)
def test_crd_that_takes_less_than_before_is_found(says: str) -> None:
    changed = copy.deepcopy(BEFORE["crd_fields"])
    EDITS[says](changed)
    (broken,) = list_broken_fields(BEFORE["crd_fields"], changed)
    assert says in broken


def test_message_whose_field_has_another_number_is_found() -> None:
    changed = copy.deepcopy(BEFORE["messages"])
    fields = changed["evalrun.judge.v1.Comparator"]
    fields["900"] = fields.pop("1")
    assert list_changed_entries(BEFORE["messages"], changed) == ["evalrun.judge.v1.Comparator/1 is gone"]
