"""Estimates how many answers a race needs, by simulation. Pure."""

from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np

from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.mean_decision import Population
from evalrun_results.sequential.race import run_race

ORDERS: Final = 100
SEED: Final = 20_261_126


@dataclass(frozen=True, slots=True)
class RaceField:
    """A race between a best run and other runs that are equally good."""

    runners: int
    problems: int
    solved: float
    """Share of the problems that the others solve."""
    differ: float
    """Share of the problems on which a run differs from the common outcome."""
    lead: float
    """Share of the problems that the best run solves in addition."""


@dataclass(frozen=True, slots=True)
class RaceOutlook:
    """The expected outcome of a race."""

    decided: float
    """Share of the races that leave only the best run."""
    needed: float
    """Mean share of all completions that a race needs."""


def make_runs(field: RaceField, rng: np.random.Generator) -> Floats:
    """Make runs x problems: solved or not. The first run leads."""
    size = field.problems
    common = rng.permutation(np.arange(size) < round(field.solved * size)).astype(np.float64)
    solved, failed = np.flatnonzero(common == 1), np.flatnonzero(common == 0)
    lead = min(round(field.lead * size), len(failed))
    changed = min(round(field.differ * size / 2), len(solved), len(failed) - lead)
    rows = []
    for place in range(field.runners):
        row = common.copy()
        more = lead if place == 0 else 0
        row[rng.choice(failed, changed + more, replace=False)] = 1.0
        row[rng.choice(solved, changed, replace=False)] = 0.0
        rows.append(row)
    return np.array(rows)


def expect_race(field: RaceField, population: Population) -> RaceOutlook:
    """Return the expected outcome of races between such runs."""
    rng = np.random.default_rng(SEED)
    values, size = make_runs(field, rng), field.problems
    races = []
    for _ in range(ORDERS):
        places = rng.permutation(size) if population == "benchmark" else rng.integers(0, size, size)
        drawn = values[:, places]
        races.append(run_race(drawn, drawn, population, size))
    return RaceOutlook(
        fmean(each.left == (0,) for each in races), fmean(each.drawn / (field.runners * size) for each in races)
    )
