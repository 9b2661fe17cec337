"""The benchmark of gates decides many replicates at a time: as the product does, and its page shows its figures."""

from typing import get_args

import numpy as np
import pytest
from gate_cells import PAGE, GateKind, read_cells, replace_table
from gate_characteristics import BETTER, FIGURES, decide_once, draws_of
from gate_scenarios import Setting

from evalrun_results.comparisons.gate import GateDecision, decide
from evalrun_results.comparisons.mean_bounds import mean_interval

DECISIONS = {(True, False): GateDecision.PASS, (False, True): GateDecision.FAIL}


@pytest.mark.parametrize("kind", ["maxRegression", "minImprovement", "anchor"])
@pytest.mark.parametrize(("samples", "missing"), [(1, "none"), (10, "at random"), (1, "not at random")])
@pytest.mark.parametrize("difference", [-0.2, -0.02, BETTER])
def test_decide_once_many_replicates_decides_each_as_the_gate_does(
    kind: str, samples: int, missing: str, difference: float
) -> None:
    rng, margin = np.random.default_rng(3), 0.01 if kind == "minImprovement" else -0.02
    setting = Setting(samples, "beta", "two-way", missing)
    (draws,) = draws_of(kind, setting, difference, 300, 6, rng)
    passed, failed = decide_once(kind, draws, np.ones_like(draws.lows, dtype=np.bool_), margin)
    bounds = (-draws.base, 1 - draws.base) if kind == "anchor" else (-1.0, 1.0)
    for row in range(6):
        low, high = mean_interval(draws.lows[row], draws.highs[row], *bounds, 0.95)
        found = DECISIONS.get((bool(passed[row]), bool(failed[row])), GateDecision.INCONCLUSIVE)
        assert found is decide(low, high, -margin, 300)


@pytest.mark.parametrize("change", ["one-way", "two-way", "whole problems"])
@pytest.mark.parametrize("difficulty", ["easy", "mid", "hard", "beta"])
def test_draws_of_every_setting_have_the_difference_that_is_asked_for(difficulty: str, change: str) -> None:
    rng = np.random.default_rng(4)
    draws = list(draws_of("similar", Setting(10, difficulty, change, "none"), -0.05, 500, 200, rng))
    truths = np.concatenate([each.truth for each in draws])
    assert truths.mean() == pytest.approx(-0.05, abs=0.004)


def test_page_of_gates_shows_the_figures_that_were_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replace_table(page, read_cells(FIGURES)) == page


def test_no_gate_that_was_measured_errs_more_than_nominal() -> None:
    cells = [each for each in read_cells(FIGURES) if each.kind in get_args(GateKind)]
    assert len(cells) > 2000
    assert [each for each in cells if each.wrong > each.allowed] == []
