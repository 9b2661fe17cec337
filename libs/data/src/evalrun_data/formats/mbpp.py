"""`mbpp.jsonl(.gz)` as published, the sanitized file's rows, and the regression part `mbpp_reg`."""

from typing import Final

from evalrun_data.entry_points import entry_point, why_unnamed
from evalrun_data.records import AssertTests, Problem
from evalrun_data.rows import Row

REGRESSION_IDS: Final = range(11, 211)
"""The 200 task ids of `mbpp_reg`."""


def task_number(row: Row) -> int:
    """Return the task id, a whole number."""
    value = row.values.get("task_id")
    if isinstance(value, bool) or not isinstance(value, int):
        raise row.wrong("task_id", "a whole number")
    return value


def parse_mbpp(row: Row, dataset: str | None) -> Problem:
    """Parse a row with `task_id`, `text` (or `prompt`), `code` and `test_list`; task 11 becomes `MBPP/11`.

    `challenge_test_list` is not part of the protocol and is not used.
    """
    row.refuse_unused_tests("MBPP", "test_list", "test_setup_code", "test_imports", "challenge_test_list")
    number = task_number(row)
    name = dataset or "mbpp"
    asserts = row.texts("test_list")
    if not asserts:
        raise row.error("field 'test_list' is empty: a problem needs at least one test")
    # The sanitized file has `prompt` and `test_imports`; the full file has `text` and `test_setup_code`.
    setup = "\n".join(row.texts("test_imports")) if row.has("test_imports") else row.optional_text("test_setup_code")
    called = entry_point(row.text("code"), asserts)
    if called is None:
        otherwise = "field 'code' defines no name that the asserts of 'test_list' call"
        raise row.error(why_unnamed("test_list", asserts, otherwise))
    return Problem(
        dataset=name,
        problem_id=f"MBPP/{number}",
        prompt=row.text("text" if row.has("text") or not row.has("prompt") else "prompt"),
        ground_truth=AssertTests(asserts, setup, called),
        split=_split(number),
        data_source=name,
    )


def _split(number: int) -> str:
    """Return the published split of a task: 1-10 prompt, 11-510 test, 511-600 validation, 601-974 train."""
    for last, split in ((10, "prompt"), (510, "test"), (600, "validation")):
        if number <= last:
            return split
    return "train"
