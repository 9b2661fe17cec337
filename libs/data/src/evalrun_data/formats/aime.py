"""AIME's rows as the hub has them: `ID`, `Problem` and `Answer`, a number that a grader compares."""

import json

from evalrun_data.records import Problem, Reference
from evalrun_data.rows import Row


def is_aime(row: Row) -> bool:
    """Return whether a row is AIME's."""
    return row.has("ID") and row.has("Problem") and row.has("Answer")


def parse_aime(row: Row, dataset: str | None, *, graded: bool = False) -> Problem:
    """Parse a row; its answer is no test, so a grader must decide.

    verl's own scorers know the data source `aime`.
    """
    if not graded:
        raise row.error("has an answer for a grader and no tests: add --grader builtin:verl, or datasets[].grader")
    problem_id = row.text_or_number("ID")
    return Problem(
        dataset=dataset or "aime",
        problem_id=problem_id,
        prompt=row.text("Problem"),
        ground_truth=Reference(json.dumps(row.text_or_number("Answer")), json.dumps({"index": problem_id})),
        data_source="aime",
    )
