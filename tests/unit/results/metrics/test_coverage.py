"""How often 95 % intervals hold the truth, simulated: with few problems, rare successes, and problems that differ."""

from collections.abc import Callable

import numpy as np
import pytest
from builders.results.samples import compute_metrics, sample_result
from builders.results.stored_runs import samples_of, totals_of

from evalrun_results.comparisons.differences import compute_differences
from evalrun_results.comparisons.pairing import pair
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.metrics.figures import Figure, MetricSet
from evalrun_results.metrics.intervals import Bounds, Floats, bootstrap_ratios, order_statistics, plus_two
from evalrun_results.samples import SampleResult

SAMPLES = 10

Draw = Callable[[np.random.Generator, int], Floats]
"""Each problem's own chance to be solved."""

KINDS: dict[str, Draw] = {
    "problems alike": lambda rng, n: np.full(n, 0.05),
    "problems differ": lambda rng, n: rng.beta(0.25, 4.75, n),
    "most problems hopeless": lambda rng, n: rng.beta(0.025, 0.475, n),
    "all or nothing": lambda rng, n: (rng.random(n) < 0.05).astype(float),
}
"""All with a mean of 0.05, as a small model on contest problems."""


def share_figure(accepted: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Figure:
    count = len(accepted)
    metric_set = MetricSet(clustered=True)
    metric_set.share("rate", accepted, np.full(count, SAMPLES), np.ones(count, dtype=bool))
    return metric_set.figures(seed=1)["rate"]


def holds(bounds: Bounds, truth: float) -> bool:
    low, high = bounds
    return low is not None and high is not None and low - 1e-12 <= truth <= high + 1e-12


def coverage(kind: str, problems: int, runs: int) -> float:
    rng = np.random.default_rng(problems)
    figures = [share_figure(rng.binomial(SAMPLES, KINDS[kind](rng, problems))) for _ in range(runs)]
    return sum(holds((each.low, each.high), 0.05) for each in figures) / runs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("problems", "runs"), [(1, 400), (2, 400), (5, 400), (10, 400), (20, 400), (30, 400), (50, 300), (100, 200)]
)
def test_the_interval_of_a_rate_keeps_its_coverage(kind: str, problems: int, runs: int) -> None:
    """The least of the table, 90 % at 2 problems that are all or nothing, is 95 % less what one problem in 20 makes."""
    assert coverage(kind, problems, runs) >= 0.89


@pytest.mark.parametrize(("problems", "at_most"), [(1, 0.3), (5, 0.65), (10, 0.75), (20, 0.85), (50, 0.93)])
def test_bootstrap_of_hopeless_problems_keeps_less_than_the_nominal_coverage(problems: int, at_most: float) -> None:
    rng = np.random.default_rng(problems)
    held, runs = 0, 300
    for _ in range(runs):
        shares = rng.binomial(SAMPLES, KINDS["most problems hopeless"](rng, problems)) / SAMPLES
        held += holds(bootstrap_ratios(shares[:, np.newaxis], np.ones((problems, 1)), rng, draws=300)[0], 0.05)
    assert held / runs < at_most


@pytest.mark.parametrize(("lost", "gained"), [(0.02, 0.0), (0.05, 0.02), (0.1, 0.1)])
@pytest.mark.parametrize("problems", [1, 2, 5, 20, 50, 164])
def test_the_interval_of_a_rare_difference_keeps_its_coverage(lost: float, gained: float, problems: int) -> None:
    rng = np.random.default_rng(problems)
    draws = rng.choice([-1.0, 1.0, 0.0], p=[lost, gained, 1 - lost - gained], size=(400, problems))
    assert np.mean([holds(plus_two(each), gained - lost) for each in draws]) >= 0.92


@pytest.mark.parametrize("percentile", [50, 95])
@pytest.mark.parametrize("problems", [5, 20, 80, 164])
def test_the_interval_of_a_percentile_keeps_its_coverage(percentile: float, problems: int) -> None:
    truth = float(np.exp({50: 0.0, 95: 1.6448536}[int(percentile)]))
    found = [order_statistics(each, percentile) for each in np.random.default_rng(3).lognormal(size=(300, problems))]
    held = [(low is None or low <= truth) and (high is None or truth <= high) for low, high in found]
    assert np.mean(held) >= 0.93


def figures_of(rows: list[SampleResult]) -> dict[str, Figure]:
    return dict(compute_metrics(rows, MetricOptions())["humaneval"].figures)


ALL, NONE, SOME = (4, 4), (4, 0), (4, 2)


@pytest.mark.parametrize(
    "counts",
    [[ALL], [NONE], [SOME], [ALL] * 2, [NONE] * 2, [ALL, NONE], [SOME] * 2, [ALL] * 164, [NONE] * 164, [SOME] * 164],
    ids=lambda counts: f"{len(counts)} problems, {counts[0][1]} to {counts[-1][1]} of 4",
)
def test_interval_of_few_problems_has_a_positive_width(counts: list[tuple[int, int]]) -> None:
    """Every metric at 0 %, at 100 %, over one problem and two, and with all samples alike."""
    figures = figures_of(samples_of(counts))
    for name, figure in figures.items():
        if figure.value is None or figure.method == "order_statistics":  # a percentile may be sure of its value
            continue
        if figure.method == "none":
            assert (figure.low, figure.high) == (None, None)
            assert "problem" in figure.no_interval_because
            assert figure.as_json()["no_interval_because"] == figure.no_interval_because
        else:
            assert figure.low is not None, name
            assert figure.high is not None, name
            assert figure.low <= figure.value <= figure.high, name
            assert figure.high - figure.low > 0.01, name
    width = (figures["accepted_at_1"].high or 0) - (figures["accepted_at_1"].low or 0)
    assert width > (0.6 if len(counts) <= 2 else 0.02)


def test_one_problem_with_many_samples_has_a_wide_interval() -> None:
    """2 of 29 samples of one problem: that was "6.9 % (6.9 % to 6.9 %)"."""
    accepted = figures_of(samples_of([(29, 2)]))["accepted_at_1"]
    assert accepted.value == pytest.approx(2 / 29)
    assert accepted.low == 0
    assert accepted.high is not None
    assert accepted.high > 0.8


def test_second_sample_of_one_problem_keeps_the_interval_wide() -> None:
    """One accepted sample: Wilson's 20.7 to 100 %. A second one made it 100 to 100 %."""
    one, two = (figures_of(samples_of([(n, n)]))["accepted_at_1"] for n in (1, 2))
    assert (one.low, one.high) == pytest.approx((0.2065, 1.0), abs=1e-4)
    assert two.low is not None
    assert two.low < 0.25
    assert two.high == 1.0


def test_amounts_of_few_problems_have_no_interval_and_say_why() -> None:
    few, many = (figures_of([sample_result(p, output_tokens=100 + p) for p in range(n)]) for n in (29, 30))
    assert (few["avg_total_gen_tokens"].method, few["avg_total_gen_tokens"].low) == ("none", None)
    assert few["avg_total_gen_tokens"].no_interval_because.startswith("fewer than 30 problems")
    assert many["avg_total_gen_tokens"].method == "bootstrap"


def test_percentile_of_too_few_problems_has_no_upper_bound() -> None:
    p95 = figures_of([sample_result(p, gen_seconds=1.0 + p) for p in range(50)])["p95_gen_time"]
    assert p95.low is not None
    assert p95.high is None


def test_two_runs_that_agree_on_every_problem_may_still_differ() -> None:
    run = samples_of([(1, place % 2) for place in range(164)])
    paired = pair(totals_of(run)["humaneval"], totals_of(run)["humaneval"])
    found = compute_differences(paired, ["accepted_at_1", "avg_total_gen_tokens"])
    assert found["accepted_at_1"].low == pytest.approx(-0.0222, abs=5e-4)
    assert found["accepted_at_1"].high == pytest.approx(0.0222, abs=5e-4)
    assert (found["avg_total_gen_tokens"].low, found["avg_total_gen_tokens"].high) == (None, None)
