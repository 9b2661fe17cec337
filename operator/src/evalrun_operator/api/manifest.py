"""Reads an EvalRun from a file and refuses what the API server would refuse, for the same reasons.

The schema and the rules are the CRD's own; nothing is checked here that is not checked there, but that an unknown field
is an error here (kubectl warns and drops it).
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from evalrun_operator.api.cel_rules import broken_rules
from evalrun_operator.api.checks import Problem, Value, structural_problems, with_defaults
from evalrun_operator.api.manifest_yaml import read_documents
from evalrun_operator.api.structural import Schema, structural_schema, without_cluster_rules, without_markers
from evalrun_operator.api.v1alpha1 import API_VERSION, KIND, EvalRun
from evalrun_runtime.exits import BadInputError

Place = Literal["cluster", "machine"]
"""Where the run is to happen. On one machine paths are fine, and the output may be named on the command line."""


def load_manifest(path: Path | str, *, place: Place) -> EvalRun:
    """Read the one EvalRun that a YAML file holds, defaults applied.

    Other objects in the file, e.g. Secrets, are passed over.

    Raises:
        BadInputError: the file cannot be read, holds no EvalRun or several, or the EvalRun is not valid. One line a
            problem, each `FILE: FIELD: what is wrong and what to write instead`.
    """
    file = Path(path)
    manifest = _only_evalrun(file, load_documents(file))
    manifest.pop("status", None)  # never the user's: the API server drops it too
    problems = find_problems(manifest, place=place)
    if problems:
        raise BadInputError("\n".join(f"{file}: {problem.path}: {problem.message}" for problem in problems))
    try:
        return EvalRun.from_wire(with_defaults(schema_for(place), manifest))
    except ValidationError as error:  # metadata alone is left: its schema is the API server's, not ours
        lines = [f"{file}: {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise BadInputError("\n".join(lines)) from error


def find_problems(manifest: Value, *, place: Place) -> list[Problem]:
    """Give everything that is wrong with an EvalRun as it stands in a manifest; a valid one gives an empty list."""
    schema = schema_for(place)
    completed = with_defaults(schema, manifest)
    problems = list(structural_problems(schema, completed))
    metadata = completed.get("metadata") if isinstance(completed, dict) else None
    if isinstance(metadata, dict) and not isinstance(metadata.get("name"), str):
        problems.append(Problem("metadata.name", "is missing: write what the run is to be called"))
    wrong = frozenset(problem.path for problem in problems if problem.spoils)
    return [*problems, *broken_rules(schema, completed, wrong)]


@lru_cache(maxsize=2)
def schema_for(place: Place) -> Schema:
    """Give the CRD's schema, less the rules that do not apply to `place`."""
    schema = structural_schema(EvalRun)
    return without_markers(schema) if place == "cluster" else without_cluster_rules(schema)


def load_documents(file: Path) -> list[Any]:
    """Read every object of a YAML file, as it stands there. Raises BadInputError where it cannot be read."""
    try:
        return read_documents(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: byte {error.start} is not UTF-8: save the file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        raise BadInputError(f"{where}: {error.problem or 'is not YAML'}") from error
    except yaml.YAMLError as error:
        raise BadInputError(f"{file}: {error}".replace("\n", " ")) from error


def _only_evalrun(file: Path, documents: Sequence[Any]) -> dict[str, Any]:
    for document in documents:
        if not isinstance(document, dict):
            raise BadInputError(f"{file}: a document is not an object: write apiVersion, kind, metadata and spec")
    runs = [document for document in documents if document.get("kind") == KIND]
    if len(runs) > 1:
        raise BadInputError(f"{file}: holds several EvalRuns ({', '.join(map(_title, runs))}): keep one a file")
    if not runs:
        found = f", but {', '.join(map(_title, documents))}" if documents else ""
        raise BadInputError(f"{file}: holds no EvalRun{found}: write kind: {KIND}")
    run: dict[str, Any] = runs[0]
    if run.get("apiVersion") != API_VERSION:
        raise BadInputError(f"{file}: apiVersion: {run.get('apiVersion')!r} is not known: write {API_VERSION}")
    return run


def _title(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name", "without name") if isinstance(metadata, dict) else "without name"
    return f"{document.get('kind', 'object without kind')} {name}"
