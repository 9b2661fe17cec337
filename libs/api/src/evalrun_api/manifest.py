"""Reads an EvalRun from a file and refuses what the API server would refuse, for the same reasons.

The schema and the rules are the CRD's own. A repeated key is an error only here: kubectl silently takes the last value,
so the API server never sees the others.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from evalrun_api.cel_rules import find_broken_rules
from evalrun_api.checks import Value, Violation, apply_defaults, quote_decimals, structural_problems
from evalrun_api.manifest_yaml import describe_mistake, read_documents
from evalrun_api.metadata import metadata_problems
from evalrun_api.structural import Schema, drop_cluster_rules, drop_markers, structural_schema
from evalrun_api.v1alpha1 import API_VERSION, KIND, SCHEDULE_KIND, EvalRun, EvalSchedule
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

Place = Literal["cluster", "machine"]
"""Place in which the run is to happen. On one machine paths are fine, and the output may be named on the command
line."""


def load_manifest(path: Path | str, *, place: Place) -> EvalRun:
    """Read the single EvalRun of a YAML file, with defaults applied.

    Other objects in the file, e.g. Secrets, are passed over.

    Raises:
        BadInputError: the file cannot be read, holds no EvalRun or several, or the EvalRun is not valid. One line a
            problem, each `FILE: FIELD: what is wrong and what to write instead`.
    """
    file = Path(path)
    manifests = _evalruns(file, load_documents(file), place)
    if len(manifests) > 1:
        raise BadInputError(f"{file}: holds several EvalRuns ({', '.join(map(_title, manifests))}): keep one a file")
    return parse_evalrun(manifests[0], where=str(file), place=place)


def parse_evalrun(manifest: dict[str, Any], *, where: str, place: Place) -> EvalRun:
    """Return the EvalRun that an object describes, defaults applied.

    Args:
        manifest: as a file holds it.
        where: stands before each problem.
        place: where the run is to happen.

    Raises:
        BadInputError: it is not valid, with a line for each problem.
    """
    run, problems = _read(manifest, place)
    if run is None:
        raise BadInputError("\n".join(f"{where}: {problem}" for problem in problems))
    return run


def load_manifests(path: Path | str, *, place: Place, needed: bool = True) -> list[EvalRun]:
    """Read every EvalRun of a YAML file, as `kubectl apply` does; at least one, if `needed`.

    Raises:
        BadInputError: the file cannot be read, lacks a needed EvalRun, or an EvalRun is not valid. Every mistake is
            listed; if the file holds several EvalRuns, each line names its EvalRun.
    """
    file = Path(path)
    manifests = _evalruns(file, load_documents(file), place, needed=needed)
    read = [(manifest, *_read(manifest, place)) for manifest in manifests]
    lines = [
        f"{file}: {problem}" if len(read) == 1 else f"{file}: {_title(manifest)}: {problem}"
        for manifest, _, problems in read
        for problem in problems
    ]
    if lines:
        raise BadInputError("\n".join(lines))
    return [run for _, run, _ in read if run is not None]


def load_schedules(path: Path | str) -> list[EvalSchedule]:
    """Read every EvalSchedule that a YAML file holds, with defaults applied; the list may be empty.

    Raises:
        BadInputError: the file cannot be read, or an EvalSchedule is not valid. Each line names its EvalSchedule.
    """
    file = Path(path)
    found = [item for item in load_documents(file) if isinstance(item, dict) and item.get("kind") == SCHEDULE_KIND]
    lines: list[str] = []
    for item in found:
        item.pop("status", None)
        problems = find_problems(item, place="cluster")
        lines += [f"{file}: {_title(item)}: {problem.path}: {problem.message}" for problem in problems]
    if lines:
        raise BadInputError("\n".join(lines))
    return [EvalSchedule.from_wire(apply_defaults(schema_for("cluster", SCHEDULE_KIND), item)) for item in found]


def _read(manifest: dict[str, Any], place: Place) -> tuple[EvalRun | None, list[str]]:
    """Return the EvalRun, or its mistakes, one per line."""
    manifest = {key: value for key, value in manifest.items() if key != "status"}  # the API server drops it too
    problems = [f"{problem.path}: {problem.message}" for problem in find_problems(manifest, place=place)]
    if problems:
        return None, problems
    try:
        return EvalRun.from_wire(apply_defaults(schema_for(place), manifest)), []
    except ValidationError as error:  # metadata alone is left: its schema is the API server's, not ours
        return None, [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]


def find_problems(manifest: Value, *, place: Place) -> list[Violation]:
    """Return every mistake in the manifest of an EvalRun or EvalSchedule; an empty list if it is valid."""
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    schema = schema_for(place, SCHEDULE_KIND if kind == SCHEDULE_KIND else KIND)
    completed = apply_defaults(schema, manifest)
    problems = list(structural_problems(schema, completed))
    problems += metadata_problems(completed.get("metadata") if isinstance(completed, dict) else None)
    wrong = frozenset(problem.path for problem in problems if problem.spoils)
    return [*problems, *find_broken_rules(schema, completed, wrong)]


@lru_cache(maxsize=4)
def schema_for(place: Place, kind: str = KIND) -> Schema:
    """Return a CRD's schema without the rules that do not apply to `place`."""
    schema = structural_schema(EvalSchedule if kind == SCHEDULE_KIND else EvalRun)
    return drop_markers(schema) if place == "cluster" else drop_cluster_rules(schema)


def load_documents(file: Path) -> list[Any]:
    """Read every object of a YAML file, as it stands there. Raises BadInputError where it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: byte {error.start} is not UTF-8: save the file as UTF-8") from error
    try:
        return read_documents(text)
    except yaml.MarkedYAMLError as error:
        raise BadInputError(describe_mistake(error, file, text)) from error
    except yaml.YAMLError as error:
        raise BadInputError(f"{file}: {error}".replace("\n", " ")) from error


def _evalruns(file: Path, documents: Sequence[Any], place: Place, *, needed: bool = True) -> list[dict[str, Any]]:
    """Return the EvalRuns of a file; on one machine with decimals as the API has them."""
    for document in documents:
        if not isinstance(document, dict):
            raise BadInputError(f"{file}: a document is not an object: write apiVersion, kind, metadata and spec")
    runs = [document for document in documents if document.get("kind") == KIND]
    if not runs and needed:
        found = f", but {', '.join(map(_title, documents))}" if documents else ""
        raise BadInputError(f"{file}: holds no EvalRun{found}: write kind: {KIND}")
    for run in runs:
        if run.get("apiVersion") != API_VERSION:
            raise BadInputError(f"{file}: apiVersion: {run.get('apiVersion')!r} is not known: write {API_VERSION}")
        for field, number in quote_decimals(schema_for(place), run) if place == "machine" else ():
            logger.warning('%s: %s: %s is taken as "%s": kubectl takes it in quotes only', file, field, number, number)
    return runs


def _title(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name", "without a name") if isinstance(metadata, dict) else "without a name"
    kind = document.get("kind")
    return f"{kind} {name}" if kind is not None else f"an object without a kind, {name}"
