"""Outputs of a run that its gates, or a race, ended early: how they decided, and with which intervals. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np

from evalrun_registry.metric import Measured
from evalrun_registry.metrics import find_metric
from evalrun_results.metrics.accumulator import DatasetMetrics, problem_values
from evalrun_results.metrics.figures import Figure, Mask
from evalrun_results.metrics.intervals import CONFIDENCE, Floats
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.samples import JsonObject
from evalrun_results.sequential.confidence_sequence import SHARE, Draws, confidence_sequence
from evalrun_results.sequential.mean_decision import Population
from evalrun_results.sequential.order import order_problems
from evalrun_runtime.exits import BadInputError

NO_INTERVAL: Final = "the run was stopped by {}: only shares have an interval that holds whenever one stops"
STOPPERS: Final = {"gates": "its gates", "race": "a race"}


@dataclass(frozen=True, slots=True)
class StoppedDataset:
    """The drawn part of a dataset."""

    problems: int
    """Number of problems that its metrics are based on: the first in drawing order."""
    of_problems: int
    """That it has."""
    cancelled: int
    """Answers that were not drawn, or whose results do not count since an earlier problem's was not there yet."""
    population: Population = "benchmark"
    """Population of its intervals."""


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    """Early end of a run before it had drawn everything."""

    seed: int
    """Seed of the order of the problems."""
    datasets: Mapping[str, StoppedDataset]
    by: Literal["gates", "race"] = "gates"
    """Cause of the end."""

    def as_json(self) -> JsonObject:
        """Return the `stoppedEarly` of summary.json."""
        content = asdict(self)
        # This is the format of earlier versions.
        if self.by == "gates":
            del content["by"]
        return content

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Parse the result of `as_json`. Raises BadInputError."""
        try:
            datasets = {name: StoppedDataset(**each) for name, each in value["datasets"].items()}
            return cls(value["seed"], datasets, value.get("by", "gates"))
        except (LookupError, TypeError, AttributeError) as error:
            raise BadInputError("summary.json: stoppedEarly has other fields than this evalrun knows") from error


def apply_anytime_intervals(
    metrics: DatasetMetrics, totals: DatasetTotals, stopped: StoppedEarly, name: str
) -> DatasetMetrics:
    """Return a dataset's metrics, with intervals that hold although the results decided when to stop.

    Every mean over problems of values from 0 to 1 gets its betting confidence sequence; other metrics have no interval.
    Problems without a value count as anything from 0 to 1.
    """
    drawn = stopped.datasets.get(name)
    if drawn is None or drawn.cancelled == 0:
        return metrics
    columns = ProblemColumns.from_totals(totals)
    ids = sorted(key for key, problem in totals.problems.items() if problem.outcomes.seen)
    places = {key: place for place, key in enumerate(ids)}
    order = np.array([places[key] for key in order_problems(stopped.seed, name, ids)], dtype=np.int64)
    shares = _shares(columns, metrics.figures)
    figures = {}
    for metric, figure in metrics.figures.items():
        figures[metric] = Figure.make_without_interval(figure.value, figure.n, NO_INTERVAL.format(STOPPERS[stopped.by]))
        if metric in shares and figure.value is not None:
            values, members = shares[metric]
            draws = Draws(
                np.where(members, values, 0.0)[order],
                np.where(members, values, 1.0)[order],
                SHARE,
                drawn.of_problems if drawn.population == "benchmark" else None,
            )
            low, high = confidence_sequence(draws, CONFIDENCE)
            figures[metric] = replace(figures[metric], low=low, high=high, method="betting", no_interval_because="")
    return replace(metrics, figures=figures)


def _shares(columns: ProblemColumns, figures: Iterable[str]) -> dict[str, tuple[Floats, Mask]]:
    """Return the values of the metrics that are shares, except those measured on noise-floor repeats."""
    known = {name: named.metric for name in figures if (named := find_metric(name)) is not None}
    wanted = [name for name, metric in known.items() if metric.is_share and metric.measured is not Measured.REPEATS]
    return problem_values(columns, wanted)
