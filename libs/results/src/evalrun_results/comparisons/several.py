"""Compares three or more runs: a baseline with the others, or all pairs. Seeds are pooled. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from string import ascii_uppercase
from typing import Final

import numpy as np

from evalrun_registry import metrics as registered
from evalrun_registry.metrics import is_share
from evalrun_results.comparisons.comparison import (
    ProblemOutcome,
    RunFacts,
    describe_missing,
    make_outcome,
    natural_order,
    select_metrics,
)
from evalrun_results.comparisons.conditions import differ_by_seed_alone, list_condition_differences, read_seed
from evalrun_results.comparisons.differences import Difference, compute_reading_differences
from evalrun_results.comparisons.multiple_tests import holm, sign_flip_p
from evalrun_results.comparisons.pairing import make_problem_columns
from evalrun_results.comparisons.readings import PairedReadings, Readings, read_metric
from evalrun_results.comparisons.roles import role_in
from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import plus_four
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import FORGED_WHERE
from evalrun_results.samples import JsonObject

HEADLINE: Final = registered.HEADLINE.name
"""The metric whose differences are tested, one test a comparison: a correction over every metric would find nothing."""
MAX_CONFIGURATIONS: Final = len(ascii_uppercase)

_Values = Mapping[str, Readings]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A run, or runs that differ only by their seed."""

    letter: str
    runs: tuple[RunFacts, ...]

    @property
    def label(self) -> str:
        """Its first run's name and model, and the seeds if there are several."""
        seeds = ", ".join(str(read_seed(run.run_info)) for run in self.runs)
        return self.runs[0].label + (f" · seeds {seeds}" if len(self.runs) > 1 else "")


@dataclass(frozen=True, slots=True)
class Standing:
    """A metric of a configuration: the mean over problems of each problem's mean over seeds."""

    value: float
    spread: float | None
    """Standard deviation over the seeds; None with a single seed."""
    low: float | None
    high: float | None
    """95 % interval over problems; None, both, of amounts."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two configurations of a family; differences are `second` minus `first`."""

    first: str
    second: str
    differences: Mapping[str, Difference]
    lost: int
    """Problems that only `first` solved."""
    gained: int
    p: float | None
    """p-value of the difference of pass@1; None if neither has a value."""
    adjusted_p: float | None
    """By Holm's correction over the comparisons of all datasets."""


@dataclass(frozen=True, slots=True)
class FlipAcross:
    """A problem that some configurations solved and some did not."""

    problem_id: str
    outcomes: Mapping[str, ProblemOutcome]
    """Outcomes by letter; with several seeds over the samples of all seeds."""


@dataclass(frozen=True, slots=True)
class DatasetAcross:
    """A dataset in several configurations."""

    dataset: str
    role: str
    """Role of the dataset, as the last run recorded it; empty if unknown."""
    problems: int
    """Number of problems judged in every run, on which everything below is based."""
    left_out: int
    """Problems in some run that were not judged in every run."""
    standings: Mapping[str, Mapping[str, Standing]]
    """Standings by metric and letter."""
    contrasts: tuple[Contrast, ...]
    solved_by_all: int
    solved_by_none: int
    flips: tuple[FlipAcross, ...]


@dataclass(frozen=True, slots=True)
class SeveralRuns:
    """Configurations side by side."""

    configurations: tuple[Configuration, ...]
    warnings: tuple[str, ...]
    datasets: tuple[DatasetAcross, ...]

    @property
    def family(self) -> int:
        """Number of tests that Holm's correction covers."""
        return sum(each.p is not None for dataset in self.datasets for each in dataset.contrasts)

    def as_json(self) -> JsonObject:
        """Return it as plain values."""
        return {
            "schema": 1,
            "configurations": {
                each.letter: {
                    "label": each.label,
                    "runs": [
                        {"place": run.place, "state": str(run.summary.get("state")), "seed": read_seed(run.run_info)}
                        for run in each.runs
                    ],
                }
                for each in self.configurations
            },
            "warnings": list(self.warnings),
            "correction": {"method": "Holm", "metric": HEADLINE, "tests": self.family},
            "datasets": {each.dataset: asdict(each) for each in self.datasets},
        }


def make_configurations(runs: Sequence[RunFacts], *, pool_seeds: bool) -> tuple[Configuration, ...]:
    """Return the runs as configurations, in the given order. `pool_seeds` joins runs that differ only by seed.

    Raises:
        ValueError: there are more configurations than letters.
    """
    groups = first_fit(runs, lambda group, run: pool_seeds and _belongs(run, group))
    if len(groups) > MAX_CONFIGURATIONS:
        raise ValueError(f"{len(groups)} configurations: at most {MAX_CONFIGURATIONS} are compared at once")
    return tuple(Configuration(letter, tuple(group)) for letter, group in zip(ascii_uppercase, groups, strict=False))


def first_fit(runs: Sequence[RunFacts], fits: Callable[[Sequence[RunFacts], RunFacts], bool]) -> list[list[RunFacts]]:
    """Put each run into the first group that it fits in, or into a group of its own."""
    groups: list[list[RunFacts]] = []
    for run in runs:
        group = next((each for each in groups if fits(each, run)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def compare_several(configurations: tuple[Configuration, ...], *, all_pairs: bool) -> SeveralRuns:
    """Compare configurations over the datasets that all of them have.

    Args:
        configurations: at least two, the baseline first.
        all_pairs: compare every pair, not only the first configuration with each other one.
    """
    runs = [run for each in configurations for run in each.runs]
    shared = [name for name in runs[0].totals if all(name in run.totals for run in runs)]
    found = _correct_p_values([_across(name, configurations, all_pairs=all_pairs) for name in shared])
    return SeveralRuns(configurations, tuple(_warnings(configurations, found)), found)


def _belongs(run: RunFacts, group: Sequence[RunFacts]) -> bool:
    return all(
        differ_by_seed_alone(run.run_info, other.run_info, sorted({*run.totals, *other.totals})) for other in group
    )


def _across(name: str, configurations: Sequence[Configuration], *, all_pairs: bool) -> DatasetAcross:
    runs = [run for each in configurations for run in each.runs]
    metrics = select_metrics(name, runs)
    seen = [{key for key, each in run.totals[name].problems.items() if each.outcomes.seen} for run in runs]
    judged = [{key for key, each in run.totals[name].problems.items() if each.outcomes.judged} for run in runs]
    problems = sorted(set.intersection(*judged))
    every = sorted(set.intersection(*seen))
    in_all = np.isin(every, problems)
    columns = {
        each.letter: [make_problem_columns(run.totals[name], every) for run in each.runs] for each in configurations
    }
    by_seed = {letter: [_values(each, metrics) for each in seeds] for letter, seeds in columns.items()}
    values = {letter: _mean_over_seeds(seeds) for letter, seeds in by_seed.items()}
    solved = {letter: np.any([each.solved for each in seeds], axis=0)[in_all] for letter, seeds in columns.items()}
    # The number of configurations that solve each problem.
    solvers: list[int] = np.sum(list(solved.values()), axis=0).tolist()
    flips = [
        FlipAcross(key, {each.letter: _outcome(each, name, key) for each in configurations})
        for key, count in zip(problems, solvers, strict=True)
        if 0 < count < len(configurations)
    ]
    letters = [each.letter for each in configurations]
    pairs = combinations(letters, 2) if all_pairs else ((letters[0], other) for other in letters[1:])
    return DatasetAcross(
        dataset=name,
        role=role_in(runs[-1].run_info, name),
        problems=len(problems),
        left_out=len(set.union(*seen) - set(problems)),
        standings={metric: standings for metric in metrics if (standings := _standings(metric, by_seed, values))},
        contrasts=tuple(_contrast(first, second, values, solved) for first, second in pairs),
        solved_by_all=solvers.count(len(configurations)),
        solved_by_none=solvers.count(0),
        flips=tuple(sorted(flips, key=lambda flip: natural_order(flip.problem_id))),
    )


def _values(columns: ProblemColumns, metrics: Sequence[str]) -> _Values:
    return {metric: found for metric in metrics if (found := read_metric(metric, columns)) is not None}


def _mean_over_seeds(seeds: Sequence[_Values]) -> _Values:
    return {
        metric: Readings(
            values=np.mean([each[metric].values for each in seeds], axis=0),
            members=np.all([each[metric].members for each in seeds], axis=0),
            lows=np.mean([each[metric].lows for each in seeds], axis=0),
            highs=np.mean([each[metric].highs for each in seeds], axis=0),
            possible=np.all([each[metric].possible for each in seeds], axis=0),
            unknown=np.sum([each[metric].unknown for each in seeds], axis=0),
            judged=np.all([each[metric].judged for each in seeds], axis=0),
        )
        for metric in seeds[0]
        if all(metric in each for each in seeds)
    }


def _standings(
    metric: str, by_seed: Mapping[str, Sequence[_Values]], values: Mapping[str, _Values]
) -> dict[str, Standing]:
    """Return a metric's standings, over the problems that have a value in every configuration."""
    if any(metric not in found for found in values.values()):
        return {}
    members = np.all([found[metric].members for found in values.values()], axis=0)
    if not members.any():
        return {}
    standings = {}
    for letter, found in values.items():
        mine = found[metric].values[members]
        low, high = plus_four(mine.clip(0.0, 1.0)) if is_share(metric) else (None, None)
        means = [float(each[metric].values[members].mean()) for each in by_seed[letter]]
        spread = float(np.std(means, ddof=1)) if len(means) > 1 else None
        standings[letter] = Standing(float(mine.mean()), spread, low, high)
    return standings


def _contrast(first: str, second: str, values: Mapping[str, _Values], solved: Mapping[str, Mask]) -> Contrast:
    ours, theirs = values[first], values[second]
    pairs = {metric: PairedReadings(ours[metric], theirs[metric]) for metric in ours if metric in theirs}
    tested = pairs.get(HEADLINE)
    return Contrast(
        first=first,
        second=second,
        differences=compute_reading_differences(pairs),
        lost=int((solved[first] & ~solved[second]).sum()),
        gained=int((~solved[first] & solved[second]).sum()),
        p=None if tested is None or not tested.members.any() else least_favourable_p(tested),
        adjusted_p=None,
    )


def least_favourable_p(readings: PairedReadings) -> float:
    """Return the p-value with each missing completion counting against the difference; 1 if they could undo it."""
    lows, highs = readings.extremes()
    if lows.sum() <= 0 <= highs.sum():
        return 1.0 if readings.not_judged != (0, 0) else sign_flip_p(lows)
    return sign_flip_p(lows if lows.sum() > 0 else highs)


def _correct_p_values(datasets: Sequence[DatasetAcross]) -> tuple[DatasetAcross, ...]:
    """Return the datasets with the p-values of all comparisons adjusted as a single family."""
    adjusted = iter(holm([each.p for dataset in datasets for each in dataset.contrasts if each.p is not None]))
    return tuple(
        replace(
            dataset,
            contrasts=tuple(
                each if each.p is None else replace(each, adjusted_p=next(adjusted)) for each in dataset.contrasts
            ),
        )
        for dataset in datasets
    )


def _outcome(configuration: Configuration, dataset: str, problem_id: str) -> ProblemOutcome:
    ended = [make_outcome(run.totals[dataset].problems[problem_id]) for run in configuration.runs]
    statuses: dict[str, int] = {}
    for each in ended:
        for status, count in each.final_status.items():
            statuses[status] = statuses.get(status, 0) + count
    return ProblemOutcome(sum(each.judged for each in ended), sum(each.accepted for each in ended), statuses)


def _warnings(configurations: Sequence[Configuration], datasets: Sequence[DatasetAcross]) -> Iterator[str]:
    names = [each.dataset for each in datasets]
    first = configurations[0]
    for other in configurations[1:]:
        lines = list_condition_differences(first.runs[0].run_info, other.runs[0].run_info, names)
        yield from (f"{first.letter} and {other.letter}: {line}" for line in lines)
    some_have = {name for each in configurations for run in each.runs for name in run.totals}
    yield from (f"{name}: not every run has it; not compared" for name in sorted(some_have - set(names)))
    for configuration in configurations:
        for run in configuration.runs:
            if (said := run.stopped_early) is not None:
                yield said
            if run.partial:
                yield f"{run.place} is partial: {run.partial}"
            yield from (
                f"{name}: {count} results of {run.place} can be forged ({FORGED_WHERE}); they feed no gate"
                for name in names
                if (count := run.totals[name].flags["forgeable"])
            )
    for each in datasets:
        if each.left_out:
            yield f"{each.dataset}: {each.left_out} problems are not compared: not every run judged them"
        for contrast in each.contrasts:
            found = contrast.differences.get(HEADLINE)
            if found is not None and found.missing is not None:
                yield f"{each.dataset}: {describe_missing(found.missing, contrast.first, contrast.second)}"
