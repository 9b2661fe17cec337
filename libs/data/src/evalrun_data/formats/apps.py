"""APPS and TACO: `question`, and `input_output` as a JSON text with inputs, outputs and, for calls, `fn_name`."""

import json
from typing import Final

from evalrun_data.formats.calls import Call, call_chat, call_tests
from evalrun_data.formats.codecontests import AUTHORS_OWN
from evalrun_data.formats.record import parse_difficulty, parse_licence, parse_tags
from evalrun_data.records import AssertTests, Problem, StdioTests
from evalrun_data.rows import Row, describe_kind

_ID_FIELDS: Final = ("problem_id", "task_id", "id", "url")


def is_apps(row: Row) -> bool:
    """Return whether a row is from APPS or TACO."""
    return row.has("question") and "input_output" in row.values


def parse_apps(row: Row, dataset: str | None) -> Problem:
    """Parse a row of APPS or TACO. The dataset defaults to `apps`; TACO's rows have no id except their `url`."""
    row.refuse_unused_tests("APPS", "input_output")
    question, starter = row.text("question"), row.optional_text("starter_code")
    tests = _tests(row, starter or question)
    return Problem(
        dataset=dataset or "apps",
        problem_id=_id(row),
        prompt=f"{question}\n\n{starter}" if starter.strip() else question,
        ground_truth=tests,
        split=row.optional_text("split"),
        data_source=row.optional_text("source") or "apps",
        difficulty=parse_difficulty(row),
        comparator=AUTHORS_OWN if isinstance(tests, StdioTests) else None,
        messages=call_chat(question, starter) if isinstance(tests, AssertTests) else (),
        tags=parse_tags(row, "tags"),
        licence=parse_licence(row),
    )


def _id(row: Row) -> str:
    for field in _ID_FIELDS:
        value = row.values.get(field)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return str(row.number)


def _tests(row: Row, starter: str) -> StdioTests | AssertTests:
    text = row.optional_text("input_output")
    if not text.strip():
        raise row.error("field 'input_output' is empty: a problem needs at least one test: remove the row")
    content = row.make_inner_row("input_output", _parse_object(row, text))
    inputs, outputs = (_list(content, field) for field in ("inputs", "outputs"))
    if len(inputs) != len(outputs) or not inputs:
        raise content.error(
            f"field 'input_output' has {len(inputs)} inputs and {len(outputs)} outputs: a problem needs at least one "
            "test, and an output for each input"
        )
    if not content.has("fn_name"):
        return StdioTests(
            tuple(_lines(content, "inputs", value) for value in inputs),
            tuple(_lines(content, "outputs", value) for value in outputs),
        )
    for number, value in enumerate(inputs):
        if not isinstance(value, list):
            raise content.error(f"field 'input_output.inputs[{number}]' should be a list of arguments")
    calls = [Call(json.dumps(given), json.dumps(wanted)) for given, wanted in zip(inputs, outputs, strict=True)]
    return call_tests(row, content.name("fn_name"), calls, starter, "apps")


def _parse_object(row: Row, text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.error(f"field 'input_output' is not JSON: {' '.join(str(error).split())[:100]}") from error
    if not isinstance(value, dict):
        raise row.error(f"field 'input_output' should be an object as JSON, not {describe_kind(value)}")
    return value


def _list(content: Row, field: str) -> list[object]:
    value = content.values.get(field)
    if not isinstance(value, list):
        raise content.wrong(field, "a list of tests")
    return value


def _lines(content: Row, field: str, value: object) -> str:
    """Return a test's text: some rows have it as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(str(line) for line in value)
    if not isinstance(value, str):
        raise content.error(f"field 'input_output.{field}' should hold texts, not {describe_kind(value)}")
    return content.encodable(field, value)
