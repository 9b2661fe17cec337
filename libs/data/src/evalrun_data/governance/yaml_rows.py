"""Reads the YAML files of data governance as rows, so that every complaint names file and field."""

from pathlib import Path
from typing import Final

from evalrun_api.manifest_yaml import describe_mistake
from evalrun_data.rows import Row, describe_kind
from evalrun_data.sources import read_bytes
from evalrun_runtime.exits import BadInputError

MAX_YAML_BYTES: Final = 16 << 20


def read_yaml(file: Path) -> object:
    """Return the content of a YAML file. Raises BadInputError if it cannot be read or is no YAML."""
    # Importing yaml costs 0.05 s, and a run without an audit needs none of it.
    import yaml

    content = read_bytes(str(file), max_bytes=MAX_YAML_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: byte {error.start} is not UTF-8: save the file as UTF-8") from error
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        raise BadInputError(describe_mistake(error, file, text)) from error
    # A ValueError is a date that no calendar has.
    except (ValueError, yaml.YAMLError) as error:
        raise BadInputError(f"{file}: {error}".replace("\n", " ")) from error


def parse_entries(value: object, file: Path, what: str) -> list[Row]:
    """Return the items of a list of mappings as rows. Raises BadInputError if it is anything else."""
    if not isinstance(value, list) or not value:
        raise BadInputError(f"{file}: expected {what}, not {describe_kind(value)}")
    rows = []
    for number, item in enumerate(value, 1):
        if not isinstance(item, dict):
            raise BadInputError(f"{file} entry {number}: expected a mapping, not {describe_kind(item)}")
        rows.append(Row({str(key): field for key, field in item.items()}, str(file), number, unit="entry"))
    return rows
