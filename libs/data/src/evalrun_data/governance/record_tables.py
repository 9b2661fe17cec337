"""Parquet layouts that a preparation writes: our record, and verl's for training splits. Pure except for pyarrow's
memory.

Tests stand as JSON texts: a column has one type, and the families of tests have several shapes.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from evalrun_data.formats.plain_text import is_untested
from evalrun_data.formats.record import make_problem_record
from evalrun_data.prompts import render
from evalrun_data.records import AssertTests, CheckTest, Problem, StdioTests
from evalrun_runtime.exits import BadInputError

Columns = Mapping[str, Any]

_TEXT: Final = pa.large_string()
_CHAT: Final = pa.list_(pa.struct([("role", pa.string()), ("content", _TEXT)]))

RECORD_SCHEMA: Final = pa.schema(
    [
        *((name, _TEXT) for name in ("dataset", "split", "problem_id", "prompt", "data_source", "ground_truth")),
        *((name, _TEXT) for name in ("difficulty", "sandbox_dataset", "sandbox_id", "prompt_sha256", "language")),
        *((name, _TEXT) for name in ("limits", "comparator", "role", "date", "licence", "reference_solution")),
        ("messages", _CHAT),
        ("tags", pa.list_(_TEXT)),
    ]
)

VERL_SCHEMA: Final = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", _CHAT),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", _TEXT)])),
        (
            "extra_info",
            pa.struct(
                [
                    *((name, pa.string()) for name in ("dataset", "split", "problem_id", "difficulty", "data_source")),
                    *((name, pa.string()) for name in ("role", "prompt_sha256", "licence", "reference_solution")),
                    ("tags", pa.list_(pa.string())),
                    ("problem_prompt", _TEXT),
                    ("index", pa.int64()),
                ]
            ),
        ),
    ]
)

_VERL_SOURCES: Final = ("codecontests", "apps", "codeforces", "taco")
"""Data sources that verl's `default_compute_score` sends to its code rewards; any other name raises there."""


def choose_schema(role: str) -> pa.Schema:
    """Return the layout of a dataset by its role: training splits are written for verl's trainer."""
    return VERL_SCHEMA if role == "train" else RECORD_SCHEMA


def make_columns(problem: Problem, index: int, solution: str) -> Columns:
    """Return a problem's row in the layout of its role. Raises BadInputError if that layout cannot hold it."""
    return verl_row(problem, index, solution) if problem.role == "train" else _record_row(problem, solution)


def make_table(rows: Sequence[Columns], role: str) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_pylist(list(rows), schema=choose_schema(role))


def _record_row(problem: Problem, solution: str) -> Columns:
    record = make_problem_record(problem)
    for name in ("ground_truth", "limits", "comparator"):
        if record.get(name) is not None:
            record[name] = json.dumps(record[name], ensure_ascii=False)
    return {**record, "reference_solution": solution or None}


def verl_row(problem: Problem, index: int, solution: str) -> dict[str, Any]:
    """Return a problem in verl's layout. Raises BadInputError if verl's rewards cannot run its tests."""
    source = problem.data_source.lower()
    return {
        "data_source": source if source in _VERL_SOURCES or is_untested(problem) else "codecontests",
        "prompt": [asdict(message) for message in render(problem, "Chat")],
        "ability": "text" if is_untested(problem) else "code",
        "reward_model": None if is_untested(problem) else _reward_model(problem),
        "extra_info": {
            "dataset": problem.dataset,
            "split": problem.split,
            "problem_id": problem.problem_id,
            "difficulty": problem.difficulty,
            "data_source": problem.data_source,
            "role": problem.role,
            "prompt_sha256": problem.prompt_sha256,
            "licence": problem.licence or None,
            "tags": list(problem.tags) or None,
            "reference_solution": solution or None,
            "problem_prompt": problem.prompt,
            "index": index,
        },
    }


def _reward_model(problem: Problem) -> dict[str, str]:
    return {"style": "rule", "ground_truth": json.dumps(_verl_tests(problem), ensure_ascii=False)}


def _verl_tests(problem: Problem) -> dict[str, object]:
    match problem.ground_truth:
        case StdioTests(inputs, outputs, groups, prelude):
            more = {"groups": groups, "prelude": prelude}
            return {"inputs": inputs, "outputs": outputs, **{name: value for name, value in more.items() if value}}
        case AssertTests(asserts, setup, entry_point, prelude):
            # verl knows no setup code: it runs the program and then the assert.
            tests = [f"{setup}\n{text}" if setup else text for text in asserts]
            return {"assert_case": tests, "entry_point": entry_point, **({"prelude": prelude} if prelude else {})}
        case CheckTest(prompt, check, entry_point):
            # verl has no such form. After the program no text of the prompt may define the function again.
            helpers = _find_helpers(prompt, entry_point)
            text = "\n".join(filter(None, (helpers, check.rstrip("\n"), f"check({entry_point})")))
            return {"assert_case": [text], "entry_point": entry_point, **({"prelude": helpers} if helpers else {})}
        case _:
            raise BadInputError(
                f"problem '{problem.problem_id}' of dataset '{problem.dataset}' has tests that verl's rewards cannot "
                "run: a training split needs stdin/stdout tests or asserts; give the dataset the role dev or test"
            )


def _find_helpers(prompt: str, entry_point: str) -> str:
    """Return the definitions and imports of a prompt besides the requested function; empty if it is not Python."""
    try:
        body = ast.parse(prompt).body
    except (SyntaxError, ValueError, RecursionError):
        return ""
    asked = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    kept = [node for node in body if not (isinstance(node, asked) and node.name == entry_point)]
    return "\n".join(ast.get_source_segment(prompt, node) or "" for node in kept if not isinstance(node, ast.Expr))
