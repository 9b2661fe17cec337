"""Races of finished runs: which problems count, what is refused, and what is said."""

import pytest
from builders.results.stored_runs import facts_of, samples_of, verdicts_of

from evalrun_results.comparisons.run_race import UnusableRaceError, race_runs


def test_the_best_of_three_runs_is_first_and_has_stayed_to_the_end() -> None:
    runs = [
        facts_of(verdicts_of([True] * count + [False] * (200 - count)), place=place)
        for place, count in (("low", 20), ("high", 180), ("middle", 100))
    ]
    race = race_runs(runs, "humaneval", "benchmark")
    assert [each.place for each in race.runners] == ["high", "middle", "low"]
    assert [each.place for each in race.left] == ["high"]
    assert (race.problems, race.left_out, race.not_judged) == (200, 0, 0)
    assert 0 < race.needed < 0.6
    assert race.as_json()["best"] == ["high"]


def test_problems_that_some_run_lacks_are_left_out_and_counted() -> None:
    whole, part = facts_of(verdicts_of([True] * 30), place="a"), facts_of(verdicts_of([True] * 20), place="b")
    race = race_runs([whole, part], "humaneval", "benchmark")
    assert (race.problems, race.left_out, len(race.left)) == (20, 10, 2)


def test_answers_that_were_not_judged_make_a_score_a_range() -> None:
    first = facts_of(verdicts_of([True] * 10 + [None] * 10), place="a")
    second = facts_of(verdicts_of([True] * 12 + [False] * 8), place="b")
    race = race_runs([first, second], "humaneval", "benchmark")
    assert (race.not_judged, len(race.left)) == (10, 2)
    assert next((each.low, each.high) for each in race.runners if each.place == "a") == (0.5, 1.0)


def test_samples_count_as_the_share_that_was_accepted() -> None:
    first = facts_of(samples_of([(4, 3)] * 50), place="a")
    second = facts_of(samples_of([(2, 1)] * 50), place="b")
    race = race_runs([first, second], "humaneval", "benchmark")
    assert [(each.place, each.low) for each in race.runners] == [("a", 0.75), ("b", 0.5)]


@pytest.mark.parametrize(
    ("dataset", "other", "message"),
    [
        ("mbpp", "humaneval", "has no results of dataset mbpp: it has humaneval"),
        ("humaneval", "mbpp", "has no results of dataset humaneval: it has mbpp"),
    ],
)
def test_a_run_without_the_dataset_is_refused(dataset: str, other: str, message: str) -> None:
    runs = [facts_of(verdicts_of([True])), facts_of(verdicts_of([True], dataset=other))]
    with pytest.raises(UnusableRaceError, match=message):
        race_runs(runs, dataset, "benchmark")
