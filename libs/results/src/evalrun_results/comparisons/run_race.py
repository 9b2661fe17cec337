"""Finds the best of several runs by a race over their problems. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.conditions import read_seed
from evalrun_results.comparisons.pairing import make_problem_columns
from evalrun_results.comparisons.roles import role_in
from evalrun_results.metrics.problem_totals import FORGED_WHERE
from evalrun_results.outputs.stopped_early import StoppedEarly
from evalrun_results.samples import JsonObject
from evalrun_results.sequential.mean_decision import Population
from evalrun_results.sequential.order import order_problems
from evalrun_results.sequential.race import ERROR, run_race


class UnusableRaceError(ValueError):
    """The runs cannot be raced. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Runner:
    """A run in a race."""

    place: str
    label: str
    low: float
    high: float
    """pass@1 over the run's problems, if every completion that was not judged had failed, or been accepted."""
    problems: int
    """That it answered."""
    dropped_after: int | None
    """Number of problems; None: the run may be the best."""


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
    """Runs that may be the best first, then those that stayed longest."""
    stopped_after: int
    """Number of problems after which a single run was left, else of all problems."""
    drawn: int
    """Problems that all runners together needed."""
    not_judged: int
    """Completions that were counted at their worst for either side."""

    @property
    def left(self) -> tuple[Runner, ...]:
        """The runs that may be the best."""
        return tuple(each for each in self.runners if each.dropped_after is None)

    @property
    def answered(self) -> float:
        """Share of all completions that the runs have."""
        return sum(each.problems for each in self.runners) / (self.problems * len(self.runners))

    @property
    def needed(self) -> float:
        """Part of all answers that the race needed."""
        return self.drawn / (self.problems * len(self.runners))

    def as_json(self) -> JsonObject:
        """Return it as plain values."""
        shares = {"answered": self.answered, "needed": self.needed}
        return {"schema": 1, **asdict(self), **shares, "best": [each.place for each in self.left]}


def race_runs(runs: Sequence[RunFacts], dataset: str, population: Population) -> Race:
    """Race runs in the drawing order of the first run's seed: finished runs on their common problems, or the runs of a
    single race on the problems drawn so far.

    A problem's value is the share of its answers that were accepted. One that was not judged counts for a run, and
    against it, as is worst for whoever profits from it; so does a problem of a race that a run has not answered yet.

    Raises:
        UnusableRaceError: a run lacks the dataset, its results can be forged, its gates chose how many problems it
            has, the runs share no problem, or they belong to different races.
    """
    for run in runs:
        _check(run, dataset)
    seen = [{key for key, each in run.totals[dataset].problems.items() if each.outcomes.seen} for run in runs]
    everything, shared = set.union(*seen), set.intersection(*seen)
    is_under_way = any(read_early_stop(run) for run in runs)
    names = sorted(everything if is_under_way else shared)
    if not shared:
        raise UnusableRaceError(f"the runs share no problem of {dataset}: race runs of the same problems")
    size = _size_of_race(runs, dataset, seen) if is_under_way else len(names)
    place_of = {name: place for place, name in enumerate(names)}
    lows, highs = np.zeros((len(runs), len(names))), np.ones((len(runs), len(names)))
    not_judged = 0
    for row, (run, has) in enumerate(zip(runs, seen, strict=True)):
        own = sorted(has & place_of.keys())
        columns, places = make_problem_columns(run.totals[dataset], own), [place_of[name] for name in own]
        lows[row, places] = columns.accepted / columns.seen
        highs[row, places] = (columns.accepted + columns.seen - columns.judged) / columns.seen
        not_judged += int((columns.seen - columns.judged).sum())
    answered = np.array([[name in has for name in names] for has in seen])
    order = [place_of[name] for name in order_problems(read_seed(runs[0].run_info) or 0, dataset, names)]
    found = run_race(lows[:, order], highs[:, order], population, size)
    runners = [
        Runner(run.place, run.label, float(low[has].mean()), float(high[has].mean()), int(has.sum()), after)
        for run, low, high, has, after in zip(runs, lows, highs, answered, found.dropped_after, strict=True)
    ]
    return Race(
        dataset,
        role_in(runs[-1].run_info, dataset),
        population,
        ERROR,
        size,
        0 if is_under_way else len(everything) - len(shared),
        tuple(sorted(runners, key=_rank_runner)),
        found.stopped_after,
        found.drawn,
        not_judged,
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
    stopped = read_early_stop(run)
    if stopped is not None and stopped.by != "race":
        raise UnusableRaceError(f"{run.stopped_early}: race runs that were judged to their end")


def read_early_stop(run: RunFacts) -> StoppedEarly | None:
    """Return how a run was stopped early, or None if it was not. Raises BadInputError."""
    stopped = run.summary.get("stoppedEarly")
    return StoppedEarly.parse(stopped) if isinstance(stopped, Mapping) else None


def _size_of_race(runs: Sequence[RunFacts], dataset: str, seen: Sequence[Collection[str]]) -> int:
    """Return the number of problems of the benchmark that runs of one race draw in the same order.

    Raises:
        UnusableRaceError: they belong to different races.
    """
    sizes, seeds = set[int](), set[int | None]()
    for run, has in zip(runs, seen, strict=True):
        stopped = read_early_stop(run)
        drawn = None if stopped is None else stopped.datasets.get(dataset)
        sizes.add(len(has) if drawn is None else drawn.of_problems)
        seeds.add(read_seed(run.run_info))
    if len(sizes) > 1 or len(seeds) > 1:
        raise UnusableRaceError(
            f"the runs were stopped by different races: {dataset} has {' or '.join(map(str, sorted(sizes)))} problems, "
            f"drawn by {'one seed' if len(seeds) == 1 else 'different seeds'}: name the runs of one race"
        )
    return sizes.pop()


def _rank_runner(runner: Runner) -> tuple[bool, int, float]:
    after = runner.dropped_after
    return after is not None, -(after or 0), -(runner.low + runner.high)
