"""Hydra's command-line overrides: `key=value`, `+key=value`, `++key=value` and `~key`. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from evalrun_runtime.exits import BadInputError

_OVERRIDE = re.compile(r"(?P<sign>~|\+{0,2})(?P<key>[A-Za-z0-9_.]+)(?:=(?P<value>.*))?", re.DOTALL)


def apply_overrides(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a configuration with the overrides applied, in their order.

    Raises:
        BadInputError: an override is not readable, or only Hydra can resolve it.
    """
    changed = _copy_values(values)
    for override in overrides:
        found = _OVERRIDE.fullmatch(override)
        if found is None or (found["value"] is None) != (found["sign"] == "~"):
            raise BadInputError(f"{override}: write key=value, or ~key to leave a key out")
        *directories, name = found["key"].split(".")
        place = changed
        for directory in directories:
            inner = place.get(directory)
            place[directory] = inner if isinstance(inner, dict) else {}
            place = place[directory]
        if found["sign"] == "~":
            place.pop(name, None)
        else:
            place[name] = _value(override, found["value"].strip())
    return changed


def _value(override: str, text: str) -> Any:  # noqa: ANN401 - YAML
    if text.startswith("{"):
        raise BadInputError(f"{override}: write one override per key below it")
    if "," in text and text[:1] not in ("[", "'", '"'):
        raise BadInputError(f"{override}: is a sweep over several runs: write one value, or [A,B] for a list")
    if text.startswith("${"):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInputError(f"{override}: the value is not readable: put it in quotes") from error


def _copy_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy_values(value) if isinstance(value, Mapping) else value for key, value in values.items()}
