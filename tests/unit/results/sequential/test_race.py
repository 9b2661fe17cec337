"""Races: who is dropped, when, and how often the best one is."""

import math

import numpy as np
import pytest

from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.mean_decision import Population
from evalrun_results.sequential.race import run_race

POPULATIONS: tuple[Population, ...] = ("benchmark", "similar")


def solved(*rates: float, problems: int = 300, seed: int = 1) -> Floats:
    """Make whether each runner solves each problem: its rate of them, by chance which."""
    rng = np.random.default_rng(seed)
    rows = [np.arange(problems) < round(rate * problems) for rate in rates]
    return np.array([rng.permutation(row) for row in rows], dtype=np.float64)


@pytest.mark.parametrize("population", POPULATIONS)
def test_clearly_best_runner_is_left_and_the_worst_is_dropped_first(population: Population) -> None:
    values = solved(0.5, 0.9, 0.1)
    found = run_race(values, values, population, 300)
    assert found.left == (1,)
    second, _, first = (after or 0 for after in found.dropped_after)
    assert 0 < first <= second == found.stopped_after < 300
    assert found.drawn == first + second + found.stopped_after


@pytest.mark.parametrize("population", POPULATIONS)
def test_equal_runners_are_never_dropped(population: Population) -> None:
    values = np.vstack([solved(0.5)] * 3)
    found = run_race(values, values, population, 300)
    assert found.left == (0, 1, 2)
    assert found.drawn == 900


def test_a_benchmark_that_was_drawn_whole_leaves_the_one_that_solved_one_problem_more() -> None:
    values = np.ones((2, 50))
    values[0, 20] = 0.0
    assert run_race(values, values, "benchmark", 50).left == (1,)
    assert run_race(values, values, "similar", 50).left == (0, 1)
    assert run_race(values[:, :40], values[:, :40], "benchmark", 50).left == (0, 1), "ten problems may turn it"


def test_growing_race_drops_the_same_runners_at_the_same_places() -> None:
    values = solved(0.5, 0.7, 0.55, 0.2, seed=4)
    whole = run_race(values, values, "benchmark", 300)
    for count in range(0, 301, 30):
        part = run_race(values[:, :count], values[:, :count], "benchmark", 300)
        expected = [after if after is not None and after <= count else None for after in whole.dropped_after]
        assert list(part.dropped_after) == expected


def test_runner_that_might_have_solved_its_not_judged_answers_is_not_dropped() -> None:
    lows = solved(0.9, 0.3)
    highs = lows.copy()
    highs[1] = 1.0
    assert run_race(lows, highs, "benchmark", 300).left == (0, 1)


def test_race_of_one_runner_is_refused() -> None:
    with pytest.raises(ValueError, match="two runners"):
        run_race(np.ones((1, 5)), np.ones((1, 5)), "benchmark", 5)


@pytest.mark.parametrize("population", POPULATIONS)
def test_best_runner_is_rarely_dropped(population: Population) -> None:
    """Two of five are best: one of the two may be dropped in 5 % of the orders, and three standard errors."""
    orders, dropped = 200, 0
    problems = solved(0.5, 0.5, 0.48, 0.48, 0.45, problems=160, seed=2)
    rng = np.random.default_rng(3)
    for _ in range(orders):
        places = rng.permutation(160) if population == "benchmark" else rng.integers(0, 160, 160)
        values = problems[:, places]
        dropped += run_race(values, values, population, 160).dropped_after[0] is not None
    assert dropped / orders <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / orders)
