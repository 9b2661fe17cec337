"""Leaderboards: ranks that say what cannot be told apart, tables of what was measured alike, and what is not ranked."""

from dataclasses import replace

import numpy as np
import pytest
from builders.results.stored_runs import facts_of, samples_of, verdicts_of

from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.leaderboard import ERROR, pairwise_p, rank_runs
from evalrun_results.comparisons.multiple_tests import holm
from evalrun_results.metrics.problem_totals import DatasetTotals


def run_of(solved: int, problems: int = 200, *, place: str, temperature: float = 0.0, seed: int = 0) -> RunFacts:
    spec = {"model": {"path": f"org/{place}"}, "protocol": {"temperature": temperature, "seed": seed}}
    return facts_of(verdicts_of([True] * solved + [False] * (problems - solved)), place=place, spec=spec)


def ranks(*runs: RunFacts) -> list[tuple[str, int, int]]:
    (table,) = rank_runs(runs).tables
    return [(each.places[0], each.first_rank, each.last_rank) for each in table.entries]


def test_runs_far_apart_have_distinct_ranks_with_the_best_first() -> None:
    runs = [run_of(solved, place=place) for place, solved in (("low", 20), ("high", 180), ("middle", 100))]
    assert ranks(*runs) == [("high", 1, 1), ("middle", 2, 2), ("low", 3, 3)]


def test_runs_that_cannot_be_told_apart_share_their_ranks() -> None:
    runs = [run_of(solved, place=place) for place, solved in (("a", 101), ("b", 100), ("low", 20))]
    assert ranks(*runs) == [("a", 1, 2), ("b", 1, 2), ("low", 3, 3)]


def test_lead_that_missing_answers_could_undo_gives_a_shared_rank() -> None:
    first = facts_of(verdicts_of([True] * 100 + [False] * 100), place="whole")
    second = facts_of(verdicts_of([True] * 50 + [None] * 60 + [False] * 90), place="missing")
    assert ranks(first, second) == [("whole", 1, 2), ("missing", 1, 2)]
    (table,) = rank_runs([first, second]).tables
    missing = table.entries[1]
    assert (missing.lowest, missing.highest, missing.coverage) == (0.25, 0.55, 0.7)
    assert missing.low < 0.25 < 0.55 < missing.high


def test_problem_that_a_run_did_not_reach_counts_as_missing() -> None:
    whole, part = run_of(100, place="whole"), run_of(90, 90, place="part")
    (table,) = rank_runs([whole, part]).tables
    assert table.problems == 200
    found = {each.places[0]: each for each in table.entries}
    assert (found["part"].lowest, found["part"].highest, found["part"].coverage) == pytest.approx((0.45, 1.0, 0.45))


def test_runs_measured_differently_are_in_separate_tables() -> None:
    board = rank_runs([run_of(100, place="a"), run_of(180, place="b", temperature=0.8)])
    assert [[each.places for each in table.entries] for table in board.tables] == [[("a",)], [("b",)]]
    assert board.tables[0].differs == ()
    assert board.tables[1].differs == ("protocol.temperature: 0.0 against 0.8",)
    assert board.tests == 0


def test_seeds_of_a_model_are_one_entry_and_seeds_of_others_may_differ() -> None:
    runs = [run_of(100, place="a", seed=1), run_of(120, place="b", seed=3)]
    again = replace(run_of(110, place="a", seed=2), place="a-again")
    (table,) = rank_runs([*runs, again]).tables
    assert {each.places: (each.seeds, each.lowest) for each in table.entries} == {
        ("a", "a-again"): ((1, 2), 0.525),
        ("b",): ((3,), 0.6),
    }


def test_several_samples_count_as_the_share_that_was_accepted() -> None:
    runs = [facts_of(samples_of([(4, 3)] * 50), place="a"), facts_of(samples_of([(2, 1)] * 50), place="b")]
    (table,) = rank_runs(runs).tables
    assert [(each.places[0], each.lowest) for each in table.entries] == [("a", 0.75), ("b", 0.5)]


def test_forgeable_or_stopped_runs_are_not_ranked_and_are_named() -> None:
    forgeable = run_of(200, place="forged")
    forgeable.totals["humaneval"].flags["forgeable"] = 3
    stopped = replace(run_of(150, place="stopped"), summary={"stoppedEarly": {"after": 10}})
    board = rank_runs([forgeable, stopped, run_of(100, place="sound")])
    assert [each.places for each in board.tables[0].entries] == [("sound",)]
    assert [line.split(":")[0].split(" ")[0] for line in board.not_ranked] == ["forged", "stopped"]
    assert rank_runs([forgeable]).tables == ()


def test_a_run_without_any_answers_is_named() -> None:
    empty = replace(run_of(1, place="empty"), totals={"humaneval": DatasetTotals()})
    board = rank_runs([empty, run_of(100, place="sound")])
    assert board.not_ranked == ("empty: has no answers of humaneval",)
    assert [each.places for each in board.tables[0].entries] == [("sound",)]


def test_datasets_have_a_table_each_and_one_correction() -> None:
    both = [
        facts_of([*verdicts_of([True] * 30), *verdicts_of([False] * 30, dataset="mbpp")], place=place)
        for place in ("a", "b", "c")
    ]
    board = rank_runs(both)
    assert [(each.dataset, each.problems) for each in board.tables] == [("humaneval", 30), ("mbpp", 30)]
    assert board.tests == 6


def test_equal_runs_are_seldom_ranked_apart() -> None:
    """Six equal runs on problems of mixed difficulty, 400 times: more than 36 apart has a chance of 2e-4 at 5 %."""
    rng = np.random.default_rng(20261126)
    apart = 0
    for _ in range(400):
        chances = rng.beta(0.6, 0.6, 120)
        scores = list((rng.random((6, 120)) < chances).astype(float))
        apart += min(holm(list(pairwise_p(scores, scores).values()))) < ERROR
    assert 0 < apart <= 36
