"""Computes every metric of docs/outputs.md for each dataset, with its 95 % interval. Pure.

The unit is the problem. With n > 1 a rate is the mean over problems of its share among the problem's judged samples;
tokens and seconds per problem are sums over its samples; a problem is solved if one of its samples was accepted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np

from evalrun_registry.metric import Interval, Measured, NamedMetric, Table
from evalrun_registry.metrics import METRICS, find_metric, metrics_in
from evalrun_results.metrics.activity import RunActivity, WorkShares
from evalrun_results.metrics.estimators import ESTIMATORS, Measurements, Prices, ProblemValues
from evalrun_results.metrics.figures import Figure, Mask, MetricSet
from evalrun_results.metrics.groups import group_figures
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import (
    APART_CAUSES,
    FINAL_STATUSES,
    NOT_JUDGED_REPEATS,
    NOT_JUDGED_TURNS,
    OTHER_CAUSES,
    DatasetTotals,
)
from evalrun_results.metrics.seeds import seed_figures
from evalrun_results.metrics.turns import count_turns
from evalrun_results.samples import TEST_STATUS_NAMES, JsonObject, SampleResult

FLAGGED: Final = (
    *("truncated", "with_assumed_timeouts", "without_token_count", "cached", "forgeable"),
    *("accepted_by_case", "accepted_by_tolerance", "with_several_tests"),
)
"""Flags of samples that are counted beside the metrics."""
LISTED_CAUSES: Final = 20
"""Maximum number of listed causes of completions that were not judged."""
_MEANS: Final = (Interval.PROPORTION, Interval.MEAN_SHARE, Interval.MEAN)
SEED: Final = 20_240_229
"""Seed of every bootstrap: the same results give the same bytes."""


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Options of the metrics from the run's spec and its GPUs."""

    ks: tuple[int, ...] | None = None
    """The k of pass@k to report; None: 1, 10 and 100 as far as n reaches."""
    budget: bool = False
    """EVAL@budget: report `solved_within_budget`."""
    turns: int = 1
    """Number of turns of EVAL@turns whose metrics are reported."""
    gpu_seconds: float | None = None
    """Every replica from its start to its release; None or 0 without replicas of the run."""
    gpu_hour_price: float | None = None
    cpu_hour_price: float | None = None
    """Price of an hour of CPU time of the judged programs."""
    throughput: bool = True
    """False if completions of an earlier run were judged again: their requests and these verdicts lie apart."""
    seed: int = SEED
    sampled: frozenset[str] = frozenset()
    """Datasets with `purpose: Sampling`: they have counts and no metrics."""


@dataclass(frozen=True, slots=True)
class DatasetMetrics:
    """The metrics of a dataset."""

    coverage: float
    """Judged / all, in samples."""
    accepted_bounds: tuple[float, float]
    """Bounds of pass@1 if all samples that were not judged had failed, and if they had been accepted."""
    counts: JsonObject
    figures: Mapping[str, Figure]
    score_means: Mapping[str, float] = field(default_factory=dict)
    """Mean score by data source; empty if no grader scored anything."""
    groups: JsonObject = field(default_factory=dict)
    """Metrics by difficulty, by tag and by seed, if there are several."""

    @property
    def not_judged(self) -> int:
        """Samples that count neither way."""
        count = self.counts["not_judged"]
        return count if isinstance(count, int) else 0

    @property
    def complete(self) -> bool:
        """Whether every answer was judged, of every turn and noise-floor repeat; otherwise the run is degraded."""
        others = (self.counts[NOT_JUDGED_REPEATS], self.counts[NOT_JUDGED_TURNS])
        return self.not_judged == 0 and others == (0, 0)

    def summary(self) -> JsonObject:
        """Return the dataset's entry in summary.json."""
        return {
            "coverage": self.coverage,
            "accepted_bounds": list(self.accepted_bounds),
            "counts": self.counts,
            **({"score_means": dict(self.score_means)} if self.score_means else {}),
            **self.groups,
            "metrics": {name: figure.as_json() for name, figure in self.figures.items()},
        }


@dataclass(slots=True)
class MetricsAccumulator:
    """Adds up results in any order, and keeps a few numbers per problem."""

    samples_per_seed: int | None = None
    """`protocol.samples` of a run with several seeds, to keep totals of each; None: it has a single seed."""
    _by_seed: dict[str, dict[int, DatasetTotals]] = field(default_factory=dict)
    _datasets: dict[str, DatasetTotals] = field(default_factory=dict)
    _activity: RunActivity = field(default_factory=RunActivity)

    @property
    def datasets(self) -> Mapping[str, DatasetTotals]:
        """Totals so far, by dataset; callers must not change them."""
        return self._datasets

    def add(self, result: SampleResult) -> None:
        """Add a result.

        Raises:
            ValueError: the same key was given before.
        """
        totals = self._datasets.get(result.dataset)
        if totals is None:
            totals = self._datasets[result.dataset] = DatasetTotals()
        totals.add(result)
        if self.samples_per_seed is not None:
            seeds = self._by_seed.setdefault(result.dataset, {})
            seeds.setdefault(result.sample // self.samples_per_seed, DatasetTotals()).add(result)
        if result.repeat == 0:
            self._activity.add(result)

    def finish(self, options: MetricOptions) -> dict[str, DatasetMetrics]:
        """Return the metrics of each dataset, in the order in which they were first met: the spec's."""
        datasets = {name: self._datasets[name] for name in self._datasets if self._datasets[name].problems}
        shares = gpu_shares(datasets, options.gpu_seconds)
        work = self._work_shares(datasets) if options.throughput else None
        found = {name: dataset_metrics(totals, options, shares.get(name), work) for name, totals in datasets.items()}
        found = {
            name: replace(metrics, groups={**metrics.groups, **self._seed_figures(name, options)})
            for name, metrics in found.items()
        }
        return {
            name: replace(metrics, figures={}, score_means={}, groups={}) if name in options.sampled else metrics
            for name, metrics in found.items()
        }

    def _seed_figures(self, dataset: str, options: MetricOptions) -> JsonObject:
        """Return each figure by seed, for a run with several."""
        seeds = self._by_seed.get(dataset, {})
        return seed_figures([mean_figures(seeds[number], options) for number in sorted(seeds)])

    def _work_shares(self, datasets: Mapping[str, DatasetTotals]) -> WorkShares | None:
        problems = [problem for totals in datasets.values() for problem in totals.problems.values()]
        return self._activity.shares(
            sum(problem.gen_seconds for problem in problems),
            sum(problem.judge_seconds for problem in problems),
            sum(problem.outcomes.seen > 0 for problem in problems),
        )


def gpu_shares(datasets: Mapping[str, DatasetTotals], gpu_seconds: float | None) -> dict[str, float]:
    """Split GPU seconds over datasets by output tokens. Returns an empty mapping if they cannot be split."""
    if not gpu_seconds:
        return {}
    if len(datasets) == 1:
        return dict.fromkeys(datasets, gpu_seconds)
    tokens = sum(totals.all_output_tokens for totals in datasets.values())
    if tokens == 0 or not all(totals.tokens_known for totals in datasets.values()):
        return {}
    return {name: gpu_seconds * totals.all_output_tokens / tokens for name, totals in datasets.items()}


def dataset_metrics(
    totals: DatasetTotals, options: MetricOptions, gpu_seconds: float | None, work: WorkShares | None
) -> DatasetMetrics:
    """Return the metrics of a dataset.

    Args:
        totals: by problem.
        options: of the run.
        gpu_seconds: the dataset's share; None where unknown.
        work: seconds of the run's active time for each unit of work; None without throughput.
    """
    columns = ProblemColumns.from_totals(totals)
    clustered = bool((columns.seen > 1).any())
    prices = Prices(options.gpu_hour_price, options.cpu_hour_price)
    given = Measurements(columns, options.turns, gpu_seconds, prices, work)
    found = dict(_estimates(given, _list_reported_metrics(given, options, clustered=clustered)))
    metric_set = MetricSet(clustered)
    for named, values in found.items():
        _add_figure(metric_set, named, values)
    left_out: JsonObject = {
        named.name: values.left_out for named, values in found.items() if values.left_out is not None
    }
    figures = metric_set.figures(options.seed)
    return DatasetMetrics(
        coverage=float(columns.judged.sum() / columns.seen.sum()) if len(columns.seen) else 0.0,
        accepted_bounds=columns.compute_accepted_bounds(),
        counts=_counts(totals, columns, left_out),
        figures=_add_high_bounds(figures, found) if totals.flags["with_assumed_timeouts"] else figures,
        score_means=columns.score_means(),
        groups=group_figures(totals, dataset_figures, options.seed),
    )


def mean_figures(totals: DatasetTotals, options: MetricOptions) -> dict[str, float]:
    """Return the values of the metrics that are means over problems."""
    columns = ProblemColumns.from_totals(totals)
    given = Measurements(columns, options.turns)
    clustered = bool((columns.seen > 1).any())
    wanted = [
        named
        for named in _list_reported_metrics(given, options, clustered=clustered)
        if named.metric.interval in _MEANS
    ]
    return {
        named.name: float(found.values[found.members].mean())
        for named, found in _estimates(given, wanted)
        if found.members.any()
    }


def dataset_figures(totals: DatasetTotals, seed: int) -> Mapping[str, Figure]:
    """Return the metrics that a terminal shows, for a part of a dataset."""
    columns = ProblemColumns.from_totals(totals)
    wanted = [metric.to_named(0) for metric, _ in metrics_in(Table.END)]
    metric_set = MetricSet(bool((columns.seen > 1).any()))
    for named, values in _estimates(Measurements(columns), wanted):
        _add_figure(metric_set, named, values)
    return metric_set.figures(seed)


def problem_values(columns: ProblemColumns, names: Iterable[str]) -> dict[str, tuple[Floats, Mask]]:
    """Return every problem's value, and which problems have a value, for metrics that are means over problems.

    By the very estimators of the figures: two runs are compared by the differences of these values.
    """
    wanted = [named for name in names if (named := find_metric(name)) is not None and named.metric.interval in _MEANS]
    estimated = _estimates(_make_measurements(columns, wanted), wanted)
    return {named.name: (found.values, found.members) for named, found in estimated}


def estimate_problems(metric: str, columns: ProblemColumns) -> ProblemValues | None:
    """Return a metric of every problem; None where the run has no such metric, or it is no mean over problems."""
    named = find_metric(metric)
    if named is None or named.metric.interval not in _MEANS:
        return None
    return ESTIMATORS[named.metric.name](_make_measurements(columns, [named]), named.number)


def _make_measurements(columns: ProblemColumns, wanted: Iterable[NamedMetric]) -> Measurements:
    return Measurements(columns, max((_turns_for(named, columns) for named in wanted), default=1))


def _turns_for(named: NamedMetric, columns: ProblemColumns) -> int:
    if named.metric.measured is not Measured.TURNS:
        return 1
    return named.number or max(2, count_turns(columns.problems))


def _list_reported_metrics(given: Measurements, options: MetricOptions, *, clustered: bool) -> Iterator[NamedMetric]:
    """Yield the metrics of a run. Metrics of turns are ordered turn by turn."""
    measured = {Measured.ALWAYS, Measured.REPEATS}
    measured |= {Measured.SAMPLES} if clustered else set()
    measured |= {Measured.BUDGET} if options.budget else set()
    measured |= {Measured.TURNS} if options.turns > 1 else set()
    numbers: dict[str, Iterable[int]] = {
        "": (0,),
        "<k>": given.default_ks if options.ks is None else options.ks,
        "<t>": range(1, options.turns + 1),
    }
    for placeholder, neighbours in groupby(METRICS, key=lambda metric: metric.number):
        metrics = [metric for metric in neighbours if metric.measured in measured]
        for number in numbers[placeholder]:
            yield from (metric.to_named(number) for metric in metrics if not placeholder or number >= metric.first)


def _estimates(given: Measurements, wanted: Iterable[NamedMetric]) -> Iterator[tuple[NamedMetric, ProblemValues]]:
    for named in wanted:
        found = ESTIMATORS[named.metric.name](given, named.number)
        if found is not None:
            yield named, found


def _add_figure(metric_set: MetricSet, named: NamedMetric, found: ProblemValues) -> None:
    """Add the figure with the interval that the metric's description asks for."""
    match named.metric.interval:
        case Interval.PROPORTION:
            metric_set.share(named.name, found.above, found.below, found.members)
        case Interval.MEAN_SHARE:
            known = found.values[found.members]
            shares = bool((known >= 0).all() and (known <= 1).all())
            (metric_set.mean_share if shares else metric_set.mean)(named.name, found.values, found.members)
        case Interval.MEAN:
            metric_set.mean(named.name, found.values, found.members)
        case Interval.RATIO:
            metric_set.ratio(named.name, found.above.astype(np.float64), found.below.astype(np.float64), found.members)
        case Interval.PERCENTILE:
            metric_set.percentile(named.name, found.values, found.members, named.metric.percentile)


def _add_high_bounds(figures: Mapping[str, Figure], found: Mapping[NamedMetric, ProblemValues]) -> dict[str, Figure]:
    """Add to the pass ratio's figures the values that they would have if every assumed timeout had passed."""
    metric_set = MetricSet(clustered=True)
    for named, values in found.items():
        if values.above_had_all_passed is not None:
            _add_figure(metric_set, named, replace(values, above=values.above_had_all_passed))
    high = metric_set.values()
    return {name: replace(figure, high_bound=high.get(name)) for name, figure in figures.items()}


def _causes(causes: Counter[str]) -> JsonObject:
    """Return the most frequent causes with their counts, and the sum of all other counts."""
    named = sorted((-count, cause) for cause, count in causes.items() if cause != OTHER_CAUSES)
    listed: JsonObject = {cause: -count for count, cause in named[:LISTED_CAUSES]}
    others = causes[OTHER_CAUSES] - sum(count for count, _ in named[LISTED_CAUSES:])
    return {**listed, OTHER_CAUSES: others} if others else listed


def _counts(totals: DatasetTotals, columns: ProblemColumns, left_out: JsonObject) -> JsonObject:
    """Count samples, or problems if the name says so, without noise-floor repeats."""
    not_judged = int((columns.seen - columns.judged).sum())
    statuses: Counter[str] = Counter({name: int(columns.statuses[name].sum()) for name in FINAL_STATUSES})
    statuses["api_error"] += not_judged
    return {
        "problems": len(columns.seen),
        "solved_problems": int(columns.solved.sum()),
        "samples": int(columns.seen.sum()),
        "judged": int(columns.judged.sum()),
        "accepted": int(columns.accepted.sum()),
        "not_judged": not_judged,
        "not_judged_causes": _causes(totals.causes),
        "forgeable_causes": dict(sorted(totals.forgeable_causes.items())),
        "judged_together": sum(n for cause, n in totals.forgeable_causes.items() if cause not in APART_CAUSES),
        "memory_limit": int(columns.memory_limit.sum()),
        "tests": {name: totals.tests[status] for status, name in TEST_STATUS_NAMES.items() if totals.tests[status]},
        "final_status": dict(statuses),
        "left_out_problems": left_out,
        NOT_JUDGED_REPEATS: totals.flags[NOT_JUDGED_REPEATS],
        NOT_JUDGED_TURNS: totals.flags[NOT_JUDGED_TURNS],
        **{name: totals.flags[name] for name in FLAGGED},
    }
