"""A race finds the best of several runs, and drops each run as soon as it cannot be the best. Pure.

For each ordered pair of runs, a gambler bets that the first is behind the second, as in a sequential gate
(`confidence_sequence`). A runner is dropped when the mean of the capitals won against it by all others reaches
1 / `error`. Against one that is best every such bet is fair or worse, so is their mean, and by Ville's inequality it
ever reaches 1 / `error` with probability `error` at most: whatever the number of runners, however often somebody
looked. A dropped runner draws no more, and what it had won until then stays as it was.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import DIFFERENCE, MAX_LOG, ROUNDING, log_capital_above
from evalrun_results.sequential.mean_decision import Population

ERROR: Final = 0.05
"""Maximum probability with which a best run is dropped."""


@dataclass(frozen=True, slots=True)
class RaceFinding:
    """How a race stands after the problems that were drawn."""

    dropped_after: tuple[int | None, ...]
    """Number of problems after which each run was dropped; None: it is still in the race."""
    stopped_after: int
    """Number of problems after which a single run was left, else of all drawn problems."""

    @property
    def left(self) -> tuple[int, ...]:
        """The runs that are still in the race. The race is decided if a single run is left."""
        return tuple(runner for runner, after in enumerate(self.dropped_after) if after is None)

    @property
    def drawn(self) -> int:
        """Problems that all runners together needed until the race was decided."""
        return sum(self.stopped_after if after is None else after for after in self.dropped_after)


def run_race(lows: Floats, highs: Floats, population: Population, size: int, error: float = ERROR) -> RaceFinding:
    """Play a race over the problems drawn so far. The result depends only on the values, not on how often the race is
    evaluated.

    Args:
        lows, highs: runners x problems, in drawing order, up to the first problem that some runner in the race has not
            completed: bounds from 0 to 1 of a runner's share of accepted answers.
        population: of which the means are asked.
        size: number of problems of the benchmark, drawn or not.
        error: probability with which a best runner may be dropped.

    Raises:
        ValueError: there are fewer than two runners.
    """
    runners, count = lows.shape
    if runners < 2:
        raise ValueError("a race needs two runners at least")
    capital = np.full((runners, runners, count), -np.inf)
    for ahead in range(runners):
        for behind in range(runners):
            if ahead != behind:
                capital[ahead, behind] = _capital(lows[ahead] - highs[behind], population, size)
    needed = math.log(runners - 1) - math.log(error)
    dropped: list[int | None] = [None] * runners
    racing = np.ones(runners, dtype=np.bool_)
    drawn = 0
    while racing.sum() > 1:
        against = _sum_of_capitals(capital)
        out: Mask = racing[:, None] & (against >= needed)
        out[:, :drawn] = False
        times = np.flatnonzero(out.any(axis=0))
        if not len(times):
            break
        drawn = int(times[0])
        worst = int(np.where(out[:, drawn], against[:, drawn], -np.inf).argmax())
        dropped[worst] = drawn + 1
        racing[worst] = False
        capital[worst, :, drawn:] = capital[worst, :, drawn : drawn + 1]
    decided = racing.sum() == 1
    return RaceFinding(tuple(dropped), drawn + 1 if decided else count)


def _capital(gains: Floats, population: Population, size: int) -> Floats:
    """Return the logarithm of the capital won against "the mean of `gains` is at most 0", after each of them."""
    if population == "similar":
        return np.minimum(log_capital_above(gains, 0.0, DIFFERENCE, None), MAX_LOG)
    found = np.minimum(log_capital_above(gains, 0.0, DIFFERENCE, size), MAX_LOG)
    left = size - 1 - np.arange(len(gains))
    certain = np.cumsum(gains) + left * DIFFERENCE.low > ROUNDING * size
    return np.where(np.logical_or.accumulate(certain), MAX_LOG, found)


def _sum_of_capitals(capital: Floats) -> Floats:
    """Return, for each runner and time, the logarithm of the total capital won against it."""
    most = capital.max(axis=0)
    total: Floats = most + np.log(np.exp(capital - most).sum(axis=0))
    return total
