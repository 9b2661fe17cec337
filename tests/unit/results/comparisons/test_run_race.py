"""Races of finished runs: which problems count, what is refused, and what is said."""

from dataclasses import replace

import numpy as np
import pytest
from builders.results.stored_runs import facts_of, samples_of, verdicts_of

from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.run_race import UnusableRaceError, race_runs
from evalrun_results.outputs.stopped_early import StoppedDataset, StoppedEarly
from evalrun_results.samples import SampleResult
from evalrun_results.sequential.order import order_problems
from evalrun_results.sequential.race import run_race


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


SIZE, SEED = 120, 3


def raced(results: list[SampleResult], drawn: int, *, place: str, seed: int = SEED) -> RunFacts:
    """Return a run of a race that has drawn some of its problems."""
    ids = [each.problem_id for each in results]
    kept = set(order_problems(seed, "humaneval", ids)[:drawn])
    facts = facts_of(
        [each for each in results if each.problem_id in kept], place=place, spec={"protocol": {"seed": seed}}
    )
    stopped = StoppedEarly(seed, {"humaneval": StoppedDataset(drawn, len(ids), len(ids) - drawn)}, "race")
    return replace(facts, summary={**facts.summary, "stoppedEarly": stopped.as_json()}) if drawn < len(ids) else facts


def test_a_race_under_way_drops_after_the_same_problems_as_one_over_all_answers() -> None:
    solved = {"best": 110, "near": 84, "far": 20}
    shares = {name: np.random.default_rng(count).permutation(SIZE) < count for name, count in solved.items()}
    every = {name: verdicts_of([bool(each) for each in share]) for name, share in shares.items()}
    names = [each.problem_id for each in every["best"]]
    order = [names.index(each) for each in order_problems(SEED, "humaneval", names)]
    values = np.array([share[order].astype(float) for share in shares.values()])
    wanted = dict(zip(solved, run_race(values, values, "benchmark", SIZE).dropped_after, strict=True))
    assert wanted["near"] is not None
    assert wanted["far"] is not None
    assert wanted["far"] < wanted["near"]
    drawn = {"best": wanted["near"] + 5, "near": wanted["near"] + 5, "far": wanted["far"] + 3}
    race = race_runs([raced(every[each], drawn[each], place=each) for each in solved], "humaneval", "benchmark")
    assert {each.place: each.dropped_after for each in race.runners} == wanted
    assert {each.place: each.problems for each in race.runners} == drawn
    assert (race.problems, race.left_out) == (SIZE, 0)
    assert race.answered == pytest.approx(sum(drawn.values()) / (3 * SIZE))


def test_run_with_fewer_finished_problems_is_not_dropped_for_the_delay() -> None:
    ahead, behind = verdicts_of([True] * SIZE), verdicts_of([True] * SIZE)
    race = race_runs([raced(ahead, 100, place="a"), raced(behind, 10, place="b")], "humaneval", "benchmark")
    assert len(race.left) == 2


def test_runs_of_different_races_are_refused() -> None:
    first = raced(verdicts_of([True] * SIZE), 40, place="a")
    with pytest.raises(UnusableRaceError, match="different seeds"):
        race_runs([first, raced(verdicts_of([True] * SIZE), 40, place="b", seed=4)], "humaneval", "benchmark")
    with pytest.raises(UnusableRaceError, match="has 100 or 120 problems"):
        race_runs([first, raced(verdicts_of([True] * 100), 40, place="b")], "humaneval", "benchmark")
