"""The files of a run's outputs: which are attested, and their rows."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from evalrun_runtime.exits import BadInputError

ATTESTATION: Final = "attestation.json"
RESULTS: Final = "results.jsonl"
VERDICTS: Final = "verdicts.jsonl"
"""The file of a bundle without tests that replaces results.jsonl."""
SUMMARY: Final = "summary.json"
RUN_INFO: Final = "run_info.json"

DERIVED: Final = frozenset({"results.parquet", "report.html"})
"""Files that are computed from other files: attested, and left out of bundles."""
_PLAIN: Final = (SUMMARY, "metrics.json", RUN_INFO, RESULTS, "results.parquet", "report.html")
_FOLDERS: Final = ("audit", "qa_logs")


def output_names(folder: Path) -> list[str]:
    """Return the names of a run's outputs, sorted.

    Raises:
        BadInputError: the folder holds no finished run, or no results.jsonl.
    """
    found = [name for name in _PLAIN if (folder / name).is_file()]
    for name in (SUMMARY, RUN_INFO, RESULTS):
        if name not in found:
            raise BadInputError(f"{folder}: {name} is missing: name the folder of a finished run")
    for sub in _FOLDERS:
        found += [str(path.relative_to(folder)) for path in (folder / sub).rglob("*") if path.is_file()]
    return sorted(found)


def read_document(path: Path) -> dict[str, Any]:
    """Return a JSON object. Raises BadInputError."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{path}: is not a JSON object")
    return found


def read_lines(path: Path) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
    """Yield each line of a JSONL file, without its newline, with the object that it holds.

    Raises:
        BadInputError: a line is no JSON object; the message names it.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInputError(f"{path}:{number}: is not JSON") from error
            if not isinstance(value, dict):
                raise BadInputError(f"{path}:{number}: is not a JSON object")
            yield line.removesuffix(b"\n"), value


def problems_file(dataset: str) -> str:
    """Return the name of a dataset's problems in a bundle."""
    return f"problems/{quote(dataset, safe='')}.jsonl"


def grader_file(dataset: str) -> str:
    """Return the name of a dataset's grader in a bundle."""
    return f"graders/{quote(dataset, safe='')}.py"


def commitments_file(dataset: str) -> str:
    """Return the name of the commitments to a dataset's hidden problems."""
    return f"commitments/{quote(dataset, safe='')}.jsonl"
