"""Explains why results do not cover every problem of a dataset. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from evalrun_aggregator.ledger.items import unpack_row
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.problems import RunProblems

NAMED_PROBLEMS: Final = 5
"""Maximum number of problems without a completion that are named in the line."""


def partial_because(ended_early: str, missing: Sequence[int], problems: RunProblems, *, absent: int = 0) -> str:
    """Return why a run's results are partial, in one line; empty if they are complete.

    Args:
        ended_early: why the run ended before everything was decided; empty for any other run.
        missing: rows of the completions that were never generated, or not given.
        problems: the problems of the run.
        absent: problems that have no completion, and count nowhere.
    """
    lacking = (
        ended_early or name_unanswered_problems(missing, problems) or absent_problems(absent, problems.items.problems)
    )
    left_out = [line for dataset in problems.datasets for line in left_out_problems(dataset)]
    return "; ".join([*([lacking] if lacking else []), *left_out])


def name_unanswered_problems(rows: Sequence[int], problems: RunProblems) -> str:
    """Name the problems without a completion, in one line; empty if there are none. `rows`: rows of the missing
    completions."""
    positions = dict.fromkeys(unpack_row(row).problem for row in rows)
    if not positions:
        return ""
    found = [problems.find_problem(position) for position in positions]
    several = len(problems.datasets) > 1
    names = [f"{each.spec.name} {problem.problem_id}" if several else problem.problem_id for each, problem in found]
    more = f" and {len(names) - NAMED_PROBLEMS} more, all in results.jsonl" if len(names) > NAMED_PROBLEMS else ""
    lack = "problems lacks" if len(names) == 1 else "problems lack"
    named = ", ".join(names[:NAMED_PROBLEMS])
    return f"{len(names)} of {problems.items.problems} {lack} an answer ({named}{more})"


def absent_problems(absent: int, problems: int) -> str:
    """Count the problems without a given completion, in one line; empty if there are none."""
    if not absent:
        return ""
    has = "problem has no answer and counts" if absent == 1 else "problems have no answer and count"
    return f"{absent} of {problems} {has} nowhere (--samples as-given)"


def left_out_problems(dataset: RunDataset) -> Iterator[str]:
    """Yield a line per reason why the run leaves out problems of a dataset."""
    name, kept = dataset.spec.name, len(dataset.problems)
    if dataset.is_cut:
        yield f"{name}: only the first {kept} problem{'' if kept == 1 else 's'} (maxProblems)"
    if count := len(dataset.excluded):
        yield f"{name}: {count} problem{' is' if count == 1 else 's are'} excluded (excludeProblems)"
