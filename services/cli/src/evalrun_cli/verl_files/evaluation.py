"""Reads the place of the rows and the names of their columns from verl's evaluation.yaml, in both of its layouts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evalrun_api.v1alpha1 import Grader
from evalrun_cli.verl_files.document import Document, Entry, refusals
from evalrun_client.grader import FUNCTION
from evalrun_data.sources import read_rows
from evalrun_runtime.exits import BadInputError

_COLUMNS: Final = {
    "prompt_key": "prompt", "response_key": "responses", "data_source_key": "data_source",
    "reward_model_key": "reward_model",
}  # fmt: skip
"""Keys below `data`, and the columns that a run reads."""
_OURS: Final = "evalrun_trainers"
_FUNCTIONS: Final = ("custom_reward_function", "reward.custom_reward_function")
"""Keys of the reward function: 0.7.0 and 0.9.1's own file have it at the top; 0.9.1's code reads it below `reward`."""
_REASONS: Final = (
    ("ray_kwargs", "no Ray is started: answers are judged by this machine's sandbox"),
    ("reward", "verl's workers; the judge decides"), ("defaults", "Hydra's list of files"), ("hydra", "Hydra's own"),
    ("data.use_shm", "files are read where they are"),
)  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """Completions and tests that an evaluation.yaml names."""

    file: str
    """Rows with problems and answers."""
    renamed: Mapping[str, str]
    """Columns whose name in the file differs from the name that a run reads: the run's name by the file's name."""
    entries: list[Entry]
    grader: Grader | None = None
    """Grader with the file's reward function; None: the rows' tests decide."""


def read_evaluation(values: Mapping[str, Any], where: str) -> Evaluation:
    """Return the evaluation that a configuration describes. Raises BadInputError if it names no file, or a key is
    refused."""
    document = Document(values, where)
    path = document.map_value("data.path", "--problems and --responses")
    if path is None:
        raise BadInputError(f"{where}: data.path: names no file of prompts and responses: write one")
    renamed = {}
    for key, ours in _COLUMNS.items():
        theirs = str(document.map_value(f"data.{key}", f"the column {ours}") or ours)
        if theirs != ours:
            renamed[theirs] = ours
    grader = None
    for function in _FUNCTIONS:
        grader = grader or _grader(document, function)
    document.ignore([*((function, "the judge decides") for function in _FUNCTIONS), *_REASONS])
    refusals(document.entries, where)
    return Evaluation(os.path.expanduser(str(path)), renamed, document.entries, grader)  # noqa: PTH111 - it may be a URL


def _grader(document: Document, function: str) -> Grader | None:
    """Return the grader that a `custom_reward_function` names; None if the rows' tests decide."""
    path = document.value(f"{function}.path")
    if path is None or _OURS in str(path):
        for key in ("path", "name", "reward_kwargs"):
            document.note(f"{function}.{key}", "default" if key == "path" else "ignored", "the judge decides")
        return None
    for key in document.open_keys:
        if key.startswith(f"{function}.reward_kwargs") and document.is_set(key):
            document.note(key, "refused", "a grader gets no arguments of yours: write them into its file, as defaults")
    document.map_value(f"{function}.path", "--grader")
    name = str(document.map_value(f"{function}.name", "the grader's function") or FUNCTION)
    if not name.isidentifier():
        raise BadInputError(f"{document.where}: {function}.name: {name!r} is not a function's name")
    return Grader(path=os.path.expanduser(str(path)), name=name)  # noqa: PTH111 - it may be a URL


def rename_columns(evaluation: Evaluation, output: Path, base_dir: Path) -> str:
    """Return a file with the column names that a run reads: the file itself, or a copy beside the output."""
    if not evaluation.renamed:
        return evaluation.file
    # Importing pyarrow costs 0.3 s.
    import pyarrow
    import pyarrow.parquet

    rows = [dict(row.values) for row in read_rows(evaluation.file, base_dir)]
    missing = [name for name in evaluation.renamed if rows and name not in rows[0]]
    if missing:
        raise BadInputError(f"{evaluation.file}: no column '{missing[0]}', which the configuration names")
    directory = output.resolve()
    copy = directory.with_name(f"{directory.name}_rows.parquet")
    table = [{evaluation.renamed.get(name, name): value for name, value in row.items()} for row in rows]
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), copy)
    # A column has values of several types.
    except pyarrow.ArrowException as error:
        raise BadInputError(
            f"{evaluation.file}: cannot be written with a run's columns: {' '.join(str(error).split())[:200]}: rename "
            "them in the file itself"
        ) from error
    except OSError as error:
        raise BadInputError(f"--output {output}: {copy} cannot be written: {error.strerror or error}") from error
    return str(copy)
