import numpy as np
import pytest
from scipy.stats import beta, multinomial

from evalrun_results.comparisons.mean_bounds import Tally, chance_at_most, lower_bound, mean_interval

ERROR = 0.025


@pytest.mark.parametrize(("values", "lost"), [(1, 0), (2, 1), (20, 0), (183, 0), (500, 3), (1055, 5), (4000, 40)])
def test_lower_bound_of_two_kinds_of_values_is_clopper_and_pearsons(values: int, lost: int) -> None:
    changes = np.zeros(values)
    changes[:lost] = -1.0
    expected = -float(beta.ppf(1 - ERROR, lost + 1, values - lost))
    assert lower_bound(changes, -1.0, ERROR) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("values", [(-1.0, 0.0, 1.0), (-1.0, -0.5, 0.0, 0.3, 1.0), (-0.4, 0.1, 0.2)])
def test_chance_at_most_agrees_with_weights_that_are_drawn(values: tuple[float, ...]) -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 30, len(values)).astype(np.float64)
    weights = rng.gamma(np.append(counts, 1.0), size=(400_000, len(values) + 1))
    means = weights @ np.append(values, -1.0) / weights.sum(axis=1)
    for quantile in (0.01, 0.3, 0.9):
        mean = float(np.quantile(means, quantile))
        found = chance_at_most(np.array(values), counts[np.newaxis], -1.0, mean)
        assert found[0] == pytest.approx(quantile, abs=0.003)


@pytest.mark.parametrize(("problems", "margin"), [(30, 0.1), (56, 0.05), (164, 0.05), (200, 0.02), (500, 0.02)])
@pytest.mark.parametrize("gains", [0.0, 0.005, 0.02, 0.1, 0.3])
def test_level_by_enumeration_at_the_margin_is_at_most_nominal(problems: int, margin: float, gains: float) -> None:
    """Every count of lost and gained problems with its probability: no simulation is involved."""
    shares = [margin + gains, gains, 1 - margin - 2 * gains]
    most = [int(problems * share + 8 * np.sqrt(problems * share)) + 8 for share in shares[:2]]
    lost, gained = (each.ravel() for each in np.meshgrid(*(np.arange(count + 1) for count in most), indexing="ij"))
    inside = lost + gained <= problems
    counts = np.stack([lost, gained, problems - lost - gained], axis=1)[inside]
    chances = multinomial.pmf(counts, problems, shares)
    likely = chances > 1e-11
    kept = counts[likely].astype(np.float64)
    passes = chance_at_most(np.array([-1.0, 1.0, 0.0]), kept, -1.0, -margin) <= ERROR
    assert float((chances[likely] * passes).sum()) <= ERROR


def test_interval_never_narrows_on_either_side_when_values_become_unknown() -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        values = rng.choice([-1.0, -0.3, 0.0, 0.0, 0.2, 1.0], size=int(rng.integers(1, 80)))
        known = mean_interval(values, values, -1.0, 1.0, 0.95)
        unknown = rng.random(len(values)) < rng.random()
        lows, highs = np.where(unknown, -1.0, values), np.where(unknown, 1.0, values)
        low, high = mean_interval(lows, highs, -1.0, 1.0, 0.95)
        assert low <= known[0] + 1e-7
        assert high >= known[1] - 1e-7


def test_tally_values_that_differ_by_rounding_are_one_value() -> None:
    assert Tally.of(np.array([0.1 + 0.2, 0.3, 1.0])).counts.tolist() == [2.0, 1.0]


def test_mean_interval_of_no_values_or_values_out_of_bounds_is_refused() -> None:
    for values in ([], [1.2]):
        with pytest.raises(ValueError, match=r"values from -1\.0 to 1\.0 are needed"):
            mean_interval(np.array(values), np.array(values), -1.0, 1.0, 0.95)
