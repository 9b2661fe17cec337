"""Draws paired runs with a known difference, for every setting of `gate_characteristics.py`. Pure, except for
the state of the random generator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from evalrun_results.metrics.intervals import Floats

SAMPLES = (1, 10)
DIFFICULTIES = ("easy", "mid", "hard", "beta")
CHANGES = ("one-way", "two-way", "whole problems")
MISSING = ("none", "at random", "not at random")
SHARES = {"easy": 0.95, "mid": 0.5, "hard": 0.06}
"""Share of the answers that the baseline solves. `beta` is Beta(0.6, 0.6): many problems are solved nearly always or
nearly never."""
BETA = 0.6
DRAWN_AGAIN = 0.2
"""Share of the answers that are drawn again in a two-way change. The other answers share their luck in both runs."""
MISSING_AT_RANDOM = 0.005
"""Share of all answers of either run that are missing."""
MISSING_NOT_AT_RANDOM = 0.05
"""Share of the baseline's solved and of the candidate's failed answers that are missing: the remaining answers make the
candidate look better."""


@dataclass(frozen=True)
class Setting:
    """Difficulty of the problems, difference of the candidate, and the missing answers."""

    samples: int
    difficulty: str
    change: str
    missing: str

    @property
    def text(self) -> str:
        """A short description, for a table."""
        return f"k={self.samples}, {self.difficulty}, {self.change}"


@dataclass(frozen=True)
class Runs:
    """Two runs, drawn many times: arrays of replicates x problems, in answers solved per problem."""

    samples: int
    baseline: Floats
    candidate: Floats
    unknown_baseline: Floats
    unknown_candidate: Floats
    """Answers that were not judged; `baseline` and `candidate` do not count them as solved."""
    true_changes: Floats
    """Change of each problem's share of solved answers, had every answer been judged."""

    def extremes(self) -> tuple[Floats, Floats]:
        lows = self.candidate - self.baseline - self.unknown_baseline
        highs = self.candidate + self.unknown_candidate - self.baseline
        return lows / self.samples, highs / self.samples

    def candidate_extremes(self) -> tuple[Floats, Floats]:
        return self.candidate / self.samples, (self.candidate + self.unknown_candidate) / self.samples


def settings() -> Iterator[Setting]:
    for samples, difficulty, change, missing in product(SAMPLES, DIFFICULTIES, CHANGES, MISSING):
        yield Setting(samples, difficulty, change, missing)


def mean_of(difficulty: str) -> float:
    """Return the baseline's expected share of solved answers."""
    return SHARES.get(difficulty, 0.5)


def draw_runs(setting: Setting, difference: float, problems: int, replicates: int, rng: np.random.Generator) -> Runs:
    """Draw pairs of runs in which the candidate's expected share of solved answers is larger by `difference`."""
    shape = (replicates, problems, setting.samples)
    if setting.difficulty == "beta":
        before = rng.beta(BETA, BETA, shape[:2])
    else:
        before = np.full(shape[:2], SHARES[setting.difficulty])
    after = _changed(before, mean_of(setting.difficulty), difference, setting.change, rng)
    luck = rng.random(shape, dtype=np.float32)
    again = luck
    if setting.change == "two-way":
        fresh = rng.random(shape, dtype=np.float32) < DRAWN_AGAIN
        again = np.where(fresh, rng.random(shape, dtype=np.float32), luck)
    solved, solves = luck < before[:, :, np.newaxis], again < after[:, :, np.newaxis]
    lost, loses = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    if setting.missing == "at random":
        lost, loses = (rng.random(shape, dtype=np.float32) < MISSING_AT_RANDOM for _ in range(2))
    elif setting.missing == "not at random":
        lost, loses = (rng.random(shape, dtype=np.float32) < MISSING_NOT_AT_RANDOM for _ in range(2))
        lost, loses = lost & solved, loses & ~solves
    count = setting.samples
    return Runs(
        samples=count,
        baseline=(solved & ~lost).sum(axis=2, dtype=np.float64),
        candidate=(solves & ~loses).sum(axis=2, dtype=np.float64),
        unknown_baseline=lost.sum(axis=2, dtype=np.float64),
        unknown_candidate=loses.sum(axis=2, dtype=np.float64),
        true_changes=(solves.sum(axis=2, dtype=np.float64) - solved.sum(axis=2)) / count,
    )


def _changed(before: Floats, mean: float, difference: float, change: str, rng: np.random.Generator) -> Floats:
    """Return the candidate's chance of each problem: `difference` more on average than the baseline's."""
    share = abs(difference) / (mean if difference < 0 else 1 - mean)
    limit = 0.0 if difference < 0 else 1.0
    if change == "whole problems":
        return np.where(rng.random(before.shape) < share, limit, before)
    moved: Floats = before + share * (limit - before)
    return moved
