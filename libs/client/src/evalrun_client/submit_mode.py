"""Checks datasets with `judgeMode: Submit`: each problem names a row of the server, which has the tests. Pure."""

from collections.abc import Iterable, Iterator

from evalrun_client.fusion_names import is_dataset_name, is_row_id
from evalrun_data.records import Problem, ServerTests
from evalrun_runtime.exits import BadInputError


def require_tests(problems: Iterable[Problem], source: str) -> Iterator[Problem]:
    """Yield the problems. Raises BadInputError at the first problem without tests of its own."""
    for problem in problems:
        if isinstance(problem.ground_truth, ServerTests):
            raise BadInputError(
                f"{source}: problem '{problem.problem_id}': it has no tests (ground_truth): a SandboxFusion server has "
                "them: write judgeMode: Submit for its dataset"
            )
        yield problem


def require_rows(problems: Iterable[Problem], source: str) -> Iterator[Problem]:
    """Yield the problems, each of which must name a row of the SandboxFusion server.

    Args:
        problems: the dataset's problems.
        source: the place that the problems were read from, for the message.

    Raises:
        BadInputError: at the first problem without a row, or whose names the server would misread.
    """
    for problem in problems:
        dataset, row = problem.sandbox_dataset, problem.sandbox_id
        where = f"{source}: problem '{problem.problem_id}'"
        if not dataset or not row:
            raise BadInputError(
                f"{where}: judgeMode: Submit needs sandbox_dataset and sandbox_id, the row of the SandboxFusion server "
                "that has its tests: add them to the record, or write judgeMode: RunCode"
            )
        if not is_dataset_name(dataset):
            raise BadInputError(f"{where}: sandbox_dataset {dataset[:100]!r}: write one of the server's /list_datasets")
        if not is_row_id(row):
            raise BadInputError(
                f"{where}: sandbox_id {row[:100]!r}: write one of the server's /list_ids, without quotes, backslashes, "
                "control characters or '..'"
            )
        yield problem
