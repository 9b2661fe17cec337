"""How many answers a difference takes: against simulated comparisons."""

import numpy as np
import pytest
from builders.results.stored_runs import samples_of, totals_of, verdicts_of

from evalrun_results.comparisons.answers_needed import gate_needs, measure_disagreement, measure_spread
from evalrun_results.comparisons.power import power_note


def test_the_parts_of_the_variance_are_those_that_the_answers_were_drawn_with() -> None:
    rng = np.random.default_rng(5)
    first, second = np.full(2000, 0.5), np.where(rng.random(2000) < 0.5, 0.3, 0.7)
    runs = [
        totals_of(samples_of([(8, int(rng.binomial(8, share))) for share in shares]))["humaneval"]
        for shares in (first, second)
    ]
    spread = measure_spread(*runs)
    assert spread.samples == 8
    assert spread.chance == pytest.approx(0.25 + 0.21, abs=0.01)
    assert spread.between == pytest.approx(0.04, abs=0.01)
    assert spread.variance(1) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("counts", [(8, 8), (16, 4), (4, 16)])
def test_measure_spread_separates_chance_for_unequal_numbers_of_samples(counts: tuple[int, int]) -> None:
    rng = np.random.default_rng(6)
    runs = [
        totals_of(samples_of([(count, int(rng.binomial(count, share))) for share in shares]))["humaneval"]
        for count, shares in zip(counts, (np.full(1000, 0.5), np.repeat([0.3, 0.7], 500)), strict=True)
    ]
    assert measure_spread(*runs).between == pytest.approx(0.04, abs=0.03)


def test_measure_spread_of_single_answers_has_no_chance() -> None:
    runs = [totals_of(verdicts_of(solved))["humaneval"] for solved in ([True, False] * 50, [True, True] * 50)]
    spread = measure_spread(*runs)
    assert (spread.chance, spread.samples, spread.problems) == (None, 1, 100)


@pytest.mark.parametrize("points", [2, 5])
def test_a_difference_is_seen_in_four_of_five_comparisons_of_that_size(points: int) -> None:
    rng = np.random.default_rng(points)
    solved = rng.random(4000) < 0.6
    flipped = np.where(rng.random(4000) < 0.15, ~solved, solved)
    runs = [totals_of(verdicts_of(map(bool, values)))["humaneval"] for values in (solved, flipped)]
    spread = measure_spread(*runs)
    need = gate_needs(spread, points, 1)
    seen = []
    for _ in range(1000):
        share = rng.random(need.problems)
        moved = spread.variance(1)
        lost, won = share < (moved + points / 100) / 2, share >= 1 - (moved - points / 100) / 2
        gains = won.astype(float) - lost
        margin = 1.96 * gains.std(ddof=1) / np.sqrt(need.problems)
        seen.append(gains.mean() + margin < 0)
    assert np.mean(seen) == pytest.approx(0.8, abs=0.05)
    assert need.sequential_problems is not None
    assert need.sequential_problems < 3 * need.problems


def test_a_gate_that_must_see_less_needs_more() -> None:
    runs = [totals_of(verdicts_of(solved))["humaneval"] for solved in ([True, False] * 50, [True, True] * 50)]
    spread = measure_spread(*runs)
    sizes = [gate_needs(spread, points, 1).problems for points in (10, 5, 2)]
    assert sizes == sorted(sizes)
    assert power_note(np.array([0.0, 1.0] * 50)).variance == pytest.approx(spread.variance(1))


def test_measure_disagreement_gives_problems_level_and_differing_share() -> None:
    runs = {
        name: totals_of(verdicts_of(solved))["humaneval"]
        for name, solved in (
            ("a", [True] * 6 + [False] * 4),
            ("b", [True] * 4 + [False] * 2 + [True] * 2 + [False] * 2),
        )
    }
    assert measure_disagreement(runs) == pytest.approx((10, 0.6, 0.4))
    several = {name: totals_of(samples_of([(4, count)] * 5))["humaneval"] for name, count in (("a", 1), ("b", 3))}
    assert measure_disagreement(several) == pytest.approx((5, 0.5, 0.625))


def test_runs_without_a_common_problem_are_refused() -> None:
    judged, missing = totals_of(verdicts_of([True])), totals_of(verdicts_of([None]))
    with pytest.raises(ValueError, match="share no problem"):
        measure_spread(judged["humaneval"], missing["humaneval"])
    with pytest.raises(ValueError, match="share no problem"):
        measure_disagreement({"a": judged["humaneval"], "b": missing["humaneval"]})
