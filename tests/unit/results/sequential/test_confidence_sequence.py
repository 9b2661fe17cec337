"""Betting confidence sequences: against the published package, against a plain product, and against their promise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from builders.results.stored_runs import CODELLAMA, GPT_4, QWEN, recorded_verdicts

from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import (
    DIFFERENCE,
    MAX_AT_RISK,
    SHARE,
    STAKES,
    Bounds,
    Draws,
    confidence_sequence,
    first_time,
    log_capital_above,
)
from evalrun_results.sequential.order import order_problems


def recorded_changes(first: str, second: str) -> Floats:
    """What each HumanEval problem gained from one recorded model to another, as a run of seed 0 draws them."""
    ours, theirs = ({row.problem_id: row.accepted for row in recorded_verdicts(file)} for file in (first, second))
    order = order_problems(0, "humaneval", ours.keys() & theirs.keys())
    return np.array([float(bool(theirs[each])) - float(bool(ours[each])) for each in order])


@pytest.mark.parametrize(
    ("runs", "count", "population", "log_capital"),
    [
        ((GPT_4, QWEN), 40, 164, -0.27191881870413437),
        ((GPT_4, QWEN), 40, None, -0.2762214352514348),
        ((GPT_4, QWEN), 164, None, -1.8079470171310885),
        ((QWEN, CODELLAMA), 40, 164, -2.5184952600534283),
        ((QWEN, CODELLAMA), 164, None, -5.339830496429909),
    ],
)
def test_the_published_package_has_the_same_capital_on_recorded_runs(
    runs: tuple[str, str], count: int, population: int | None, log_capital: float
) -> None:
    """The numbers are confseq 0.0.11's (`betting_mart`), as benchmarks/sequential_peer.py asks it."""
    values = recorded_changes(*runs)[:count]
    assert log_capital_above(values, -0.02, DIFFERENCE, population)[-1] == pytest.approx(log_capital, abs=1e-9)


@pytest.mark.parametrize("population", [12, None])
@pytest.mark.parametrize("mean", [-0.4, 0.0, 0.3])
def test_the_capital_is_a_plain_product_of_bets(population: int | None, mean: float) -> None:
    values = [0, 1, -1, 0, 0, 1, 1]
    total = Fraction(0)
    for stake in STAKES:
        capital, drawn = Fraction(1), Fraction(0)
        for place, value in enumerate(values):
            fair, growth = Fraction(mean), Fraction(1)
            if population is not None:
                fair = (population * Fraction(mean) - drawn) / (population - place)
                growth = Fraction(population, population - place)
            bet = min(Fraction(stake) / 2 * growth, Fraction(MAX_AT_RISK) / (fair + 1))
            capital *= 1 + bet * (value - fair)
            drawn += value
        total += capital
    found = log_capital_above(np.array(values, dtype=float), mean, DIFFERENCE, population)[-1]
    assert found == pytest.approx(math.log(total / len(STAKES)), abs=1e-12)


def test_capital_is_infinite_once_the_mean_is_certain() -> None:
    """9 of 10 shares are 1: whatever the last one is, their mean is above 0.85."""
    found = log_capital_above(np.ones(9), 0.85, SHARE, 10)
    assert np.isfinite(found[0])
    assert log_capital_above(np.ones(10), 0.85, SHARE, 10)[-1] == np.inf


def test_a_mean_is_ruled_out_by_mistake_as_rarely_as_promised_however_often_one_looks() -> None:
    rng = np.random.default_rng(3)
    population = np.repeat([1.0, -1.0, 0.0], [20, 30, 250])
    orders = population[np.argsort(rng.random((2000, 300)), axis=1)]
    for values, mean in ((orders, population.mean()), (-orders, -population.mean())):
        errs = float((first_time(log_capital_above(values, mean, DIFFERENCE, 300), 0.05) > 0).mean())
        assert errs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    drawn = rng.choice(population, (2000, 300))
    assert float((first_time(log_capital_above(drawn, population.mean(), DIFFERENCE, None), 0.05) > 0).mean()) <= 0.065


def test_the_interval_shrinks_to_the_mean_of_a_benchmark_and_never_widens() -> None:
    values = np.random.default_rng(1).permutation(np.repeat([1.0, 0.0], [60, 40]))
    before = (0.0, 1.0)
    for count in (1, 10, 40, 80, 99, 100):
        low, high = confidence_sequence(Draws(values[:count], values[:count], SHARE, 100), 0.95)
        assert before[0] - 1e-9 <= low <= 0.6 + 1e-9
        assert 0.6 - 1e-9 <= high <= before[1] + 1e-9
        before = (low, high)
    assert before == pytest.approx((0.6, 0.6), abs=1e-9)


def test_unknown_values_widen_the_interval_by_their_possible_effect() -> None:
    values = np.repeat([1.0, 0.0], [30, 20])  # the first five of which are not judged
    lows, highs = values.copy(), values.copy()
    lows[:5], highs[:5] = 0.0, 1.0
    low, high = confidence_sequence(Draws(lows, highs, SHARE, 50), 0.95)
    assert (low, high) == pytest.approx((0.5, 0.6), abs=1e-9)


def test_log_capital_is_the_same_for_values_with_shifted_bounds() -> None:
    """Shares beside an anchor of 0.8 are a shift: the capital is the same."""
    shares = np.array([1.0, 0.0, 1.0, 1.0])
    shifted = log_capital_above(shares - 0.8, -0.1, Bounds(-0.8, 0.2), None)
    assert shifted == pytest.approx(log_capital_above(shares, 0.7, SHARE, None), abs=1e-9)
