"""Usual causes of a metric outside its expected range: if many completions fail alike, there is mostly a single
cause. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from evalrun_results.metrics.problem_totals import DatasetTotals

MOST: Final = 0.9
"""Share of the completions from which on they count as alike."""
CAUSES: Final = {
    "empty_output": "the chat template or promptFormat does not fit the model, a stop text ends answers at once, or "
    "the server cuts them",
    "syntax_error": "the program is not found in the answers (promptFormat, mode of the responses), or weights and "
    "tokenizer do not belong together",
    "runtime_error": "the tests call another function than the prompt asks for, or a package is missing",
    "timeout": "the limits are too short for this machine, or answers wait for input",
}
"""Usual cause, by the final status that most completions share."""


def likely_causes(datasets: Sequence[DatasetTotals]) -> str:
    """Describe what the completions have in common and its usual cause, or give a general hint."""
    return "; ".join(_found(datasets)) or "no common cause shows: read some answers in qa_logs before trusting it"


def _found(datasets: Sequence[DatasetTotals]) -> Iterator[str]:
    problems = [problem for totals in datasets for problem in totals.problems.values()]
    judged = sum(problem.outcomes.judged.bit_count() for problem in problems)
    rated = sum(problem.pass_ratio_count for problem in problems)
    if not judged:
        yield "no answer was judged: look at the judge first"
        return
    for status, cause in CAUSES.items():
        count = sum(problem.statuses.get(status, 0) for problem in problems)
        if count == judged or count >= MOST * judged:
            yield f"{_how_many(count, judged)} {_what(status)}: {cause}"
    if rated and sum(problem.zero_rewards for problem in problems) == rated:
        yield (
            "every reward is 0: prompts and tests are not of the same problems, the weights were not loaded "
            "(loadFormat), or the comparator asks for more than the tests do"
        )
    if sum(problem.outcomes.accepted.bit_count() for problem in problems) == judged:
        yield "every answer is accepted: the tests accept anything, or the answers were in the training data"
    truncated = sum(totals.flags["truncated"] for totals in datasets)
    if truncated >= MOST * judged:
        yield f"{_how_many(truncated, judged)} cut: maxNewTokens is too small"


def _how_many(count: int, judged: int) -> str:
    return "every answer is" if count >= judged else f"{count} of {judged} answers are"


def _what(status: str) -> str:
    return {
        "empty_output": "empty", "syntax_error": "a syntax error", "runtime_error": "a run-time error",
        "timeout": "a timeout",
    }[status]  # fmt: skip
