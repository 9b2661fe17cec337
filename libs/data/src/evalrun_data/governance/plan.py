"""The plan of a preparation: the datasets, their sources and their roles."""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from evalrun_data.governance.allow_file import AllowedOverlap, read_allow_file
from evalrun_data.governance.yaml_rows import parse_entries, read_yaml
from evalrun_data.published import PUBLISHED
from evalrun_data.records import ROLES, Role
from evalrun_data.rows import Row, describe_kind
from evalrun_data.sources import local_path
from evalrun_runtime.exits import BadInputError

SANDBOX_FUSION_SCHEME: Final = "sandboxfusion:"

_NAME: Final = re.compile(r"^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$")
_SPLIT: Final = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """A dataset to prepare."""

    name: str
    sources: tuple[str, ...]
    role: Role
    split: str
    version: str
    licence: str
    source_url: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a preparation."""

    file: Path
    datasets: tuple[DatasetPlan, ...]
    allowed: tuple[AllowedOverlap, ...]

    @property
    def base_dir(self) -> Path:
        """Directory that relative sources start from: the plan's."""
        return self.file.parent

    @property
    def sha256(self) -> str:
        """Digest of the plan, which identifies an interrupted preparation. The allow file may change."""
        content = [asdict(dataset) for dataset in self.datasets]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_plan(file: Path) -> Plan:
    """Read a plan.

    Raises:
        BadInputError: the file cannot be read, or an entry cannot be used; names file, entry and field.
    """
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise BadInputError(f"{file}: expected a mapping with `datasets`, not {describe_kind(content)}")
    top = Row({str(key): value for key, value in content.items()}, str(file), 1, unit="entry")
    top.refuse_other_fields("datasets", "allow")
    datasets = [
        _dataset(row, file.parent) for row in parse_entries(top.values.get("datasets"), file, "a list `datasets`")
    ]
    names = [dataset.name for dataset in datasets]
    for number, name in enumerate(names, 1):
        if names.index(name) != number - 1:
            raise BadInputError(f"{file} entry {number}: dataset '{name}' is listed twice: list all its sources in one")
    allowed = read_allow_file(file.parent / top.name("allow")) if top.has("allow") else ()
    return Plan(file, tuple(datasets), allowed)


def _dataset(row: Row, base_dir: Path) -> DatasetPlan:
    row.refuse_other_fields("name", "source", "sources", "role", "split", "version", "licence", "source_url")
    name = row.name("name")
    if not _NAME.match(name):
        raise row.error(f"field 'name' is '{name}': write lower case letters, digits, - and _ (at most 63)")
    known = PUBLISHED.get(name)
    sources = _sources(row)
    for source in sources:
        check_source(source, base_dir, row)
    if (known is None or not known.role) and not row.has("role"):
        raise row.error(f"field 'role' is missing: write what '{name}' may be used for: {', '.join(ROLES)}")
    split = row.optional_text("split", known.split if known else "")
    if split and not _SPLIT.match(split):
        raise row.error(f"field 'split' is '{split}': write letters, digits, - and _ (at most 64)")
    return DatasetPlan(
        name,
        sources,
        _role(row, known.role if known else ""),
        split,
        row.optional_text("version"),
        row.optional_text("licence", (known.licence if known else "") or "unknown"),
        row.optional_text("source_url", (known.source_url if known else "") or sources[0]),
    )


def _role(row: Row, default: Role | Literal[""]) -> Role:
    if not row.has("role") and default:
        return default
    given = row.name("role")
    role: Literal["train", "dev", "test"] | None = next((known for known in ROLES if known == given), None)
    if role is None:
        raise row.error(f"field 'role' is '{given}': write one of {', '.join(ROLES)}")
    return role


def _sources(row: Row) -> tuple[str, ...]:
    if row.has("source") == row.has("sources"):
        raise row.error("write either `source` (one file) or `sources` (a list of files)")
    sources = (row.name("source"),) if row.has("source") else row.texts("sources")
    if not sources:
        raise row.error("field 'sources' is empty: list at least one file")
    for source in sources:
        if "*" in source or (any(sign in source for sign in "?[") and "://" not in source):
            raise row.error(f"source '{source}' is a pattern: name each file")
        if sources.count(source) > 1:
            raise row.error(f"source '{source}' is listed twice")
    return sources


def check_source(source: str, base_dir: Path, row: Row) -> None:
    """Refuse a symbolic link that leads out of the plan's directory, because its target could change.

    An absolute path, or one that goes up by `..`, is the user's own word and fine.
    """
    if source.startswith(SANDBOX_FUSION_SCHEME):
        return
    path = local_path(source, base_dir)
    if path is None:
        return
    inside = Path(os.path.normpath(base_dir.absolute()))
    named = Path(os.path.normpath(path.absolute()))
    if named.is_relative_to(inside) and not path.resolve().is_relative_to(base_dir.resolve()):
        raise row.error(
            f"source '{source}' is a symbolic link that leads out of the plan's directory, to {path.resolve()}: "
            "name that file itself"
        )
