"""Which differences a comparison shows."""

from builders.results.samples import sample_result
from builders.results.stored_runs import facts_of

from evalrun_cli.comparisons.text import shown_differences
from evalrun_results.comparisons.comparison import compare_runs

RIGHT, HALF, WRONG = ["success"], ["success", "wrong_answer"], ["wrong_answer"]


def shown(baseline: list[list[str]], candidate: list[list[str]]) -> set[str]:
    """Return the metrics shown for runs with an answer per problem, whose tests ended so."""
    first, second = (
        facts_of(sample_result(number, statuses=statuses) for number, statuses in enumerate(answers))
        for answers in (baseline, candidate)
    )
    (found,) = compare_runs(first, second).datasets
    return {each.metric for each in shown_differences(found)}


def test_a_pass_ratio_that_repeats_pass_at_1_is_left_out() -> None:
    names = shown([RIGHT, WRONG, WRONG], [RIGHT, RIGHT, WRONG])
    assert "accepted_at_1" in names
    assert "pass_ratio_mean" not in names


def test_pass_ratio_that_differs_from_pass_at_1_is_shown() -> None:
    assert "pass_ratio_mean" in shown([RIGHT, HALF, WRONG], [RIGHT, RIGHT, WRONG])
