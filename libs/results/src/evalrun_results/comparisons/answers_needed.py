"""How many answers it takes to see a difference between two runs, from a pilot of both. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from evalrun_results.comparisons.pairing import make_problem_columns, pair
from evalrun_results.comparisons.power import POWER, problems_to_see
from evalrun_results.comparisons.sample_size import chance_within
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.sequential.confidence_sequence import DIFFERENCE
from evalrun_results.sequential.mean_decision import Values, count_until_decision

CONFIDENCE: Final = 0.95
ORDERS: Final = 100
SEED: Final = 20_261_128
MOST_PROBLEMS: Final = 20_000
"""A sequential gate is simulated on so many problems at most."""
BEYOND: Final = 4
"""The simulation continues to this multiple of the problems of a gate of fixed size: a sequential gate needs more in
its worst orders."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the answers of two runs differ from problem to problem."""

    problems: int
    """That both have."""
    between: float
    """Variance of the differences over problems that further samples do not lower."""
    chance: float | None
    """Variance that a single answer of each run adds by chance; None: nothing tells it apart, and `between` is all of
    it, at the pilot's samples a problem."""
    samples: int
    """A problem in the pilot."""

    def variance(self, samples: int) -> float:
        """Return the variance of the differences with so many answers a problem in each run."""
        return self.between + (0.0 if self.chance is None else self.chance / samples)


@dataclass(frozen=True, slots=True)
class GateNeed:
    """The number of problems needed to see a difference 4 times in 5."""

    points: float
    """The difference, in points of 100."""
    samples: int
    """A problem."""
    problems: int
    """Problems of a gate that decides once, at its end."""
    sequential_problems: int | None
    """Of a gate that looks after each one; None: it needs more than are simulated."""


def measure_spread(baseline: DatasetTotals, pilot: DatasetTotals) -> Spread:
    """Return how two runs differ.

    The variance of the differences has two parts: real differences between problems, and chance within a problem, which
    shrinks with the number of samples (Miller 2024, section 3.2). One won and one lost problem are added to the
    observed ones.

    Raises:
        ValueError: they share no problem that was judged in both.
    """
    both = pair(baseline, pilot)
    if not both.problem_ids:
        raise ValueError("the runs share no problem that was judged in both")
    before, after = both.baseline, both.candidate
    gains = after.accepted / after.judged - before.accepted / before.judged
    variance = float(np.var(np.append(gains, [1.0, -1.0]), ddof=1))
    samples = int(min(before.judged.max(), after.judged.max()))
    known = [each for each in map(chance_within, (before, after)) if each is not None]
    if not known:
        return Spread(len(both.problem_ids), variance, None, samples)
    chance = 2 * float(np.mean(known))
    # This share of the variance within a problem is in the pilots' differences.
    share = float((1 / before.judged).mean() + (1 / after.judged).mean()) / 2
    return Spread(len(both.problem_ids), max(0.0, variance - chance * share), chance, samples)


def gate_needs(spread: Spread, points: float, samples: int) -> GateNeed:
    """Return how many problems a gate needs to show, 4 times in 5, that a run is `points` behind.

    The gate has a two-sided interval at 95 %, and so many samples of each problem.
    """
    difference, variance = points / 100, spread.variance(samples)
    problems = problems_to_see(difference, variance, CONFIDENCE)
    return GateNeed(points, samples, problems, _simulate_gate(problems, difference, variance))


def _simulate_gate(fixed: int, difference: float, variance: float) -> int | None:
    """Return how many problems a simulated sequential gate needs; None if more than the simulation has."""
    played = min(BEYOND * fixed, MOST_PROBLEMS)
    # This is the share of problems that end differently.
    moved = min(1.0, max(variance + difference**2, difference))
    rng = np.random.default_rng(SEED)
    times = []
    for _ in range(ORDERS):
        chosen = rng.random(played)
        lost = chosen < (moved + difference) / 2
        won = ~lost & (chosen < moved)
        gains = won.astype(np.float64) - lost
        before = np.where(lost, 1.0, np.where(won, 0.0, np.arange(played) % 2))
        drawn = Values(gains, gains, -before, 1 - before, DIFFERENCE)
        after = abs(int(count_until_decision(drawn, 0.0, "similar", (1 - CONFIDENCE) / 2)))
        times.append(after or played + 1)
    needed = int(np.quantile(times, POWER, method="higher"))
    return needed if needed <= played else None


def measure_disagreement(runs: Mapping[str, DatasetTotals]) -> tuple[int, float, float]:
    """Return the problems that runs share, their mean share of accepted answers, and how often answers of two differ.

    Raises:
        ValueError: they share no problem that was judged in all.
    """
    judged = [{key for key, each in totals.problems.items() if each.outcomes.judged} for totals in runs.values()]
    shared = sorted(set.intersection(*judged))
    if not shared:
        raise ValueError("the runs share no problem that was judged in all")
    columns = [make_problem_columns(totals, shared) for totals in runs.values()]
    shares = np.array([each.accepted / each.judged for each in columns])
    pairs = [
        float((shares[first] * (1 - shares[second]) + shares[second] * (1 - shares[first])).mean())
        for first in range(len(shares))
        for second in range(first + 1, len(shares))
    ]
    return len(shared), float(shares.mean()), math.fsum(pairs) / len(pairs)
