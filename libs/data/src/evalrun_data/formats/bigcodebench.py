"""BigCodeBench as published: a function to complete, and a file of unittest cases as its test."""

from evalrun_data.records import CheckTest, Message, Problem
from evalrun_data.rows import Row

INSTRUCT = "_instruct"
"""Ending of a dataset's name by which the model is asked with `instruct_prompt`."""


def is_bigcodebench(row: Row) -> bool:
    """Return whether a row has BigCodeBench's two prompts."""
    return row.has("instruct_prompt") and row.has("complete_prompt")


def parse_bigcodebench(row: Row, dataset: str | None) -> Problem:
    """Parse a row with `task_id`, both prompts, `test` and `entry_point`.

    The program runs after `complete_prompt`, whichever prompt was asked: it has the imports that the task promises.
    """
    row.refuse_unused_tests("BigCodeBench", "test")
    name = dataset or "bigcodebench"
    complete = row.text("complete_prompt")
    instruct = row.text("instruct_prompt") if name.endswith(INSTRUCT) else ""
    return Problem(
        dataset=name,
        problem_id=row.name("task_id"),
        prompt=complete,
        ground_truth=CheckTest(complete, row.name("test"), row.name("entry_point")),
        split="test",
        data_source=name,
        messages=(Message("user", instruct),) if instruct else (),
    )
