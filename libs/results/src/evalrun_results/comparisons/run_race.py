"""Which of several finished runs is best, as a race over their problems would find it. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.conditions import seed_of
from evalrun_results.comparisons.pairing import columns_of
from evalrun_results.comparisons.roles import role_in
from evalrun_results.metrics.problem_totals import FORGED_WHERE
from evalrun_results.samples import JsonObject
from evalrun_results.sequential.mean_decision import Population
from evalrun_results.sequential.order import drawing_order
from evalrun_results.sequential.race import ERROR, run_race


class UnusableRaceError(ValueError):
    """The runs cannot be raced. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Runner:
    """A run in a race."""

    place: str
    label: str
    low: float
    high: float
    """pass@1 over all problems of the race, had every answer that was not judged failed, or been accepted."""
    dropped_after: int | None
    """Problems; None: it may be the best."""


@dataclass(frozen=True, slots=True)
class Race:
    """How a race ends."""

    dataset: str
    role: str
    """Of the dataset, as the last run recorded it; empty if unknown."""
    population: Population
    error: float
    """Probability with which a best run is dropped, at most."""
    problems: int
    left_out: int
    """Problems that only some runs have."""
    runners: tuple[Runner, ...]
    """Those that may be the best first, then those that stayed longest."""
    stopped_after: int
    """Problems: when one run was left, else all."""
    drawn: int
    """Problems that all runners together needed."""
    not_judged: int
    """Answers that were taken at their worst for either side."""

    @property
    def left(self) -> tuple[Runner, ...]:
        """The runs that may be the best."""
        return tuple(each for each in self.runners if each.dropped_after is None)

    @property
    def needed(self) -> float:
        """Part of all answers that the race needed."""
        return self.drawn / (self.problems * len(self.runners))

    def as_json(self) -> JsonObject:
        """Return it as plain values."""
        return {"schema": 1, **asdict(self), "needed": self.needed, "best": [each.place for each in self.left]}


def race_runs(runs: Sequence[RunFacts], dataset: str, population: Population) -> Race:
    """Race finished runs on the problems that all of them have, in the drawing order of the first run's seed.

    A problem's value is the share of its answers that were accepted. One that was not judged counts for a run, and
    against it, as is worst for whoever profits from it.

    Raises:
        UnusableRaceError: a run lacks the dataset, its results can be forged, its gates chose how many problems it
            has, or the runs share no problem.
    """
    for run in runs:
        _check(run, dataset)
    seen = [{key for key, each in run.totals[dataset].problems.items() if each.outcomes.seen} for run in runs]
    shared = sorted(set.intersection(*seen))
    if not shared:
        raise UnusableRaceError(f"the runs share no problem of {dataset}: race runs of the same problems")
    columns = [columns_of(run.totals[dataset], shared) for run in runs]
    lows = np.array([each.accepted / each.seen for each in columns])
    highs = np.array([(each.accepted + each.seen - each.judged) / each.seen for each in columns])
    place_of = {name: place for place, name in enumerate(shared)}
    order = [place_of[name] for name in drawing_order(seed_of(runs[0].run_info) or 0, dataset, shared)]
    found = run_race(lows[:, order], highs[:, order], population, len(shared))
    runners = [
        Runner(run.place, run.label, float(low), float(high), after)
        for run, low, high, after in zip(runs, lows.mean(axis=1), highs.mean(axis=1), found.dropped_after, strict=True)
    ]
    return Race(
        dataset,
        role_in(runs[-1].run_info, dataset),
        population,
        ERROR,
        len(shared),
        len(set.union(*seen)) - len(shared),
        tuple(sorted(runners, key=_standing)),
        found.stopped_after,
        found.drawn,
        int(sum((each.seen - each.judged).sum() for each in columns)),
    )


def _check(run: RunFacts, dataset: str) -> None:
    totals = run.totals.get(dataset)
    if totals is None:
        known = ", ".join(sorted(run.totals)) or "no results at all"
        raise UnusableRaceError(f"{run.place} has no results of dataset {dataset}: it has {known}")
    if forgeable := totals.flags["forgeable"]:
        raise UnusableRaceError(
            f"{forgeable} results of {dataset} in {run.place} can be forged ({FORGED_WHERE}) and decide no race"
        )
    if run.stopped_early is not None:
        raise UnusableRaceError(f"{run.stopped_early}: race runs that were judged to their end")


def _standing(runner: Runner) -> tuple[bool, int, float]:
    after = runner.dropped_after
    return after is not None, -(after or 0), -(runner.low + runner.high)
