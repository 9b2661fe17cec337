"""Recognizes unsupported benchmarks by their fields, and refuses each with the reason."""

from evalrun_data.rows import Row


def refuse_unsupported(row: Row) -> None:
    """Raise BadInputError if a row is of a benchmark that cannot be judged here, with the reason and a way out."""
    if row.has("instance_id") and (row.has("test_patch") or row.has("FAIL_TO_PASS") or row.has("base_commit")):
        raise row.error(
            "SWE-bench is not supported: its answers are patches of a repository, tested in an image of their own for "
            "each instance, and one program is judged here: use SWE-bench's own harness"
        )
    if row.has("golden_answers") and row.has("question"):
        raise row.error(
            "a question answered in words has no tests: write it in verl's layout (prompt, data_source, reward_model) "
            "and name a grader: --grader FILE, or datasets[].grader. There is no search tool"
        )
