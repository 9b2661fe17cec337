import tracemalloc
from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from evalrun_results.metrics.intervals import Floats, bootstrap_ratios, order_statistics, plus_four, plus_two, wilson


def test_wilson_agrees_with_statsmodels_for_every_count() -> None:
    for n in (1, 2, 7, 164, 13_000):
        for k in sorted({0, 1, n // 3, n // 2, n - 1, n}):
            assert wilson(k, n) == pytest.approx(proportion_confint(k, n, method="wilson"), abs=1e-12), (k, n)


def test_wilson_keeps_to_the_unit_interval_exactly() -> None:
    assert wilson(0, 164)[0] == 0.0
    assert wilson(164, 164)[1] == 1.0
    assert wilson(0, 0) == (None, None)
    with pytest.raises(ValueError, match="5 successes"):
        wilson(5, 4)


def column(values: Floats) -> Floats:
    return values[:, np.newaxis]


def bounds_of_mean(values: Floats, seed: int = 0, draws: int = 10_000) -> tuple[float | None, float | None]:
    rng = np.random.default_rng(seed)
    return bootstrap_ratios(column(values), np.ones((len(values), 1)), rng, draws)[0]


def test_ratios_are_exactly_those_of_the_same_resamples() -> None:
    rng = np.random.default_rng(5)
    above, below = rng.random((40, 3)), rng.integers(0, 2, (40, 3)).astype(float)
    found = bootstrap_ratios(above * below, below, np.random.default_rng(9), draws=500)
    picks = np.random.default_rng(9).integers(0, 40, size=(500, 40))
    for ratio in range(3):
        outcomes = [(above * below)[pick, ratio].sum() / below[pick, ratio].sum() for pick in picks]
        assert found[ratio] == pytest.approx(tuple(np.percentile(outcomes, [2.5, 97.5])), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_means_agree_with_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.gamma(2.0, 50.0, size=int(rng.integers(60, 400)))
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=seed).confidence_interval
    width = theirs.high - theirs.low
    assert bounds_of_mean(values) == pytest.approx((theirs.low, theirs.high), abs=0.04 * width)


def test_ratios_of_sums_agree_with_scipys_paired_bootstrap() -> None:
    rng = np.random.default_rng(3)
    tokens, solved = rng.gamma(3.0, 40.0, 164), (rng.random(164) < 0.3).astype(float)
    theirs = stats.bootstrap(
        (tokens, solved),
        lambda above, below, axis: above.sum(axis=axis) / below.sum(axis=axis),
        paired=True, vectorized=True, method="percentile", n_resamples=10_000, rng=1,
    ).confidence_interval  # fmt: skip
    found = bootstrap_ratios(column(tokens), column(solved), np.random.default_rng(0))[0]
    assert found == pytest.approx((theirs.low, theirs.high), abs=0.05 * (theirs.high - theirs.low))


@pytest.mark.parametrize("percentile", [5, 50, 90, 95])
@pytest.mark.parametrize("count", [1, 5, 6, 38, 164, 13_000])
def test_percentiles_lie_between_the_order_statistics_of_the_binomial(percentile: float, count: int) -> None:
    values = np.arange(1.0, count + 1)  # the k-th smallest is k
    low, high = order_statistics(values, percentile)
    share = percentile / 100
    if low is None:
        assert stats.binom.cdf(0, count, share) > 0.025
    else:  # fewer than `low` values below the percentile is rarer than 1 in 40, and no later value is as sure
        assert stats.binom.cdf(low - 1, count, share) <= 0.025 < stats.binom.cdf(low, count, share)
    if high is None:
        assert stats.binom.sf(count - 1, count, share) > 0.025
    else:
        assert stats.binom.sf(high - 1, count, share) <= 0.025 < stats.binom.sf(high - 2, count, share)


def test_plus_four_is_agresti_and_coulls_where_problems_have_one_sample() -> None:
    for n in (1, 5, 20, 164):
        for k in sorted({0, n // 3, n}):
            values = np.array([1.0] * k + [0.0] * (n - k))
            share = (k + 2) / (n + 4)
            half = 1.959964 * np.sqrt(share * (1 - share) / (n + 3))
            assert plus_four(values) == pytest.approx((max(0, share - half), min(1, share + half)), abs=1e-6)


def test_values_out_of_range_and_no_values_are_refused() -> None:
    for values in ([], [1.1], [-0.1, 0.5]):
        with pytest.raises(ValueError, match="from 0 to 1"):
            plus_four(np.array(values))
    for values in ([], [1.1], [-1.1]):
        with pytest.raises(ValueError, match="from -1 to 1"):
            plus_two(np.array(values))


def test_cost_per_solved_has_no_upper_bound_if_resamples_solve_no_problem() -> None:
    tokens, solved = np.full((20, 1), 100.0), np.zeros((20, 1))
    solved[0] = 1  # 36 % of the draws miss it
    low, high = bootstrap_ratios(tokens, solved, np.random.default_rng(0))[0]
    assert low is not None
    assert low < 2000
    assert high is None


def test_a_cost_of_few_solved_problems_agrees_with_every_resample_there_is() -> None:
    tokens, solved = np.array([10.0, 25.0, 45.0, 80.0]), np.array([1.0, 0.0, 0.0, 0.0])
    picks = np.array(list(product(range(4), repeat=4)))
    with np.errstate(divide="ignore"):
        costs = tokens[picks].sum(axis=1) / solved[picks].sum(axis=1)  # infinite where nothing was solved
    low, high = bootstrap_ratios(column(tokens), column(solved), np.random.default_rng(0), confidence=0.4)[0]
    # 26 % of the resamples solved it more than once, 32 % never: 30 % lies among those that did once, 70 % among these.
    assert low == pytest.approx(np.quantile(costs, 0.3, method="nearest"), rel=0.1)
    assert high is None
    assert np.isinf(np.quantile(costs, 0.7, method="nearest"))


def test_a_mean_over_few_members_leaves_out_the_draws_that_have_none() -> None:
    cost, solved = np.zeros((20, 1)), np.zeros((20, 1))
    cost[0], solved[0] = 70.0, 1
    assert bootstrap_ratios(cost, solved, np.random.default_rng(0))[0] == (70.0, 70.0)


def test_bootstrap_of_no_values_has_no_bounds() -> None:
    assert bootstrap_ratios(np.zeros((0, 2)), np.zeros((0, 2)), np.random.default_rng(0)) == [(None, None)] * 2
    assert bootstrap_ratios(np.zeros((3, 1)), np.zeros((3, 1)), np.random.default_rng(0)) == [(None, None)]
    assert order_statistics(np.zeros(0), 50) == (None, None)


def test_wilson_over_clustered_samples_would_be_far_too_narrow() -> None:
    """Section 7's reason: 164 problems x 10 samples whose chance differs by problem."""
    rng = np.random.default_rng(0)
    truth, held, wilson_held, runs = 0.5, 0, 0, 120
    for run in range(runs):
        accepted = rng.binomial(10, rng.beta(0.1, 0.1, size=164))
        low, high = bounds_of_mean(accepted / 10, seed=run, draws=600)
        held += low is not None and high is not None and low <= truth <= high
        low, high = wilson(int(accepted.sum()), 1640)
        wilson_held += low is not None and high is not None and low <= truth <= high
    assert held / runs > 0.88
    assert wilson_held / runs < 0.65


def test_memory_does_not_grow_with_draws_times_problems() -> None:
    values = np.random.default_rng(0).random(50_000)
    tracemalloc.start()
    bounds_of_mean(values, draws=60)  # 3 million cells: 24 MB an array if they were all held
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6
