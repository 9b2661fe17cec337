"""Rows of SandboxFusion's own datasets: `id`, `content`, and the tests of its AutoEval, CommonOJ and MBPP classes.

The prompt is `content`. The judge runs the tests here, not the server.
"""

import ast
import json
from typing import Final

from evalrun_data.entry_points import find_asserted_name, why_unnamed
from evalrun_data.formats.codecontests import AUTHORS_OWN
from evalrun_data.records import AssertTests, CheckTest, GroundTruth, Problem, StdioTests
from evalrun_data.rows import Row, describe_kind

_TESTS: Final = ("test", "test_cases", "test_list")


def is_fusion_row(row: Row) -> bool:
    """Return whether a row has the fields of SandboxFusion's datasets."""
    return row.has("id") and row.has("content") and any(row.has(field) for field in _TESTS)


def parse_fusion_row(row: Row, dataset: str | None) -> Problem:
    """Parse a row of AutoEval (`test` is Python code), CommonOJ (`test` or `test_cases` is a list) or MBPP."""
    row.refuse_unused_tests("SandboxFusion", *_TESTS)
    name = dataset or "sandboxfusion"
    truth = _truth(row)
    return Problem(
        dataset=name,
        problem_id=row.text_or_number("id"),
        prompt=row.text("content"),
        ground_truth=truth,
        split=row.optional_text("split"),
        data_source=name,
        comparator=AUTHORS_OWN if isinstance(truth, StdioTests) else None,
    )


def _truth(row: Row) -> GroundTruth:
    labels = row.from_json("labels") if row.has("labels") else row.make_inner_row("labels", {})
    if row.has("test_list"):
        asserts = row.replace_fields(test_list=_parse_column(row, "test_list")).texts("test_list")
        return AssertTests(
            asserts, labels.optional_text("test_setup_code"), _find_called_function(row, "test_list", asserts)
        )
    field = "test_cases" if row.has("test_cases") else "test"
    value = _parse_column(row, field)
    if isinstance(value, list):
        return _cases(row, field, value)
    code = row.make_inner_row(field, value).name("code") if isinstance(value, dict) else row.name(field)
    if isinstance(value, dict) and value.get("asset"):
        raise row.error(f"field '{field}.asset' holds files, which a test here has none of: remove the row")
    return _code(row, field, code, labels)


def _cases(row: Row, field: str, cases: list[object]) -> StdioTests:
    if not cases:
        raise row.error(f"field '{field}' is empty: a problem needs at least one test")
    texts: dict[str, list[str]] = {"input": [], "output": []}
    for number, case in enumerate(cases):
        if not isinstance(case, dict):
            raise row.error(f"field '{field}[{number}]' should be an object with input and output")
        for side, stream in (("input", "stdin"), ("output", "stdout")):
            held = row.make_inner_row(f"{field}[{number}]", case)
            texts[side].append(held.inside(side).text(stream) if isinstance(case.get(side), dict) else held.text(side))
    return StdioTests(tuple(texts["input"]), tuple(texts["output"]))


def _code(row: Row, field: str, code: str, labels: Row) -> GroundTruth:
    """Return the tests of Python code: a `check` function as HumanEval has it, or plain asserts."""
    try:
        nodes = ast.parse(code).body
    except (SyntaxError, ValueError) as error:
        raise row.error(f"field '{field}' is no Python: {error}") from error
    if any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in nodes):
        prompt = row.text("content")
        named = next((holder.name("entry_point") for holder in (row, labels) if holder.has("entry_point")), None)
        return CheckTest(prompt, code, named or _find_begun_function(row, prompt))
    asserts = tuple(ast.unparse(node) for node in nodes if isinstance(node, ast.Assert))
    if len(asserts) != len(nodes) or not asserts:
        raise row.error(
            f"field '{field}' is neither a function `check` nor a list of asserts: write the problem as a record "
            "(docs/data-formats.md)"
        )
    return AssertTests(asserts, "", _find_called_function(row, field, asserts))


def _find_begun_function(row: Row, prompt: str) -> str:
    """Return the last function that a prompt begins: helpers come first."""
    names = [line.removeprefix("def ").partition("(")[0].strip() for line in prompt.splitlines() if line[:4] == "def "]
    if not names:
        raise row.error("names no function to call: add 'entry_point'")
    return names[-1]


def _find_called_function(row: Row, field: str, asserts: tuple[str, ...]) -> str:
    name = find_asserted_name(asserts)
    if name is None:
        otherwise = f"field '{field}' calls no single function in every assert: add 'entry_point'"
        raise row.error(why_unnamed(field, asserts, otherwise))
    return name


def _parse_column(row: Row, field: str) -> object:
    """Return a column's value; SandboxFusion's tables keep objects and lists as JSON in a text."""
    value = row.values[field]
    if not isinstance(value, str):
        return value
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    if isinstance(found, dict | list):
        return found
    raise row.error(f"field '{field}' should be code, or tests as JSON, not {describe_kind(found)}")
