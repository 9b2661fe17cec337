"""`HumanEval.jsonl(.gz)` as published, and files of its shape."""

from evalrun_data.records import CheckTest, Problem
from evalrun_data.rows import Row


def parse_humaneval(row: Row, dataset: str | None) -> Problem:
    """Parse a row with `task_id`, `prompt`, `entry_point` and `test`. The canonical solution is not kept."""
    # `example_test` repeats the prompt's own examples.
    row.refuse_unused_tests("HumanEval", "test", "example_test")
    name = dataset or "humaneval"
    prompt = row.text("prompt")
    return Problem(
        dataset=name,
        problem_id=row.name("task_id"),
        prompt=prompt,
        ground_truth=CheckTest(prompt, row.name("test"), row.name("entry_point")),
        split="test",
        data_source=name,
    )
