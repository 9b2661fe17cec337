"""The gates that a run must pass."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from evalrun_api.api_model import (
    PLACE_RULES,
    ApiModel,
    DatasetName,
    DecimalText,
    FractionText,
    PositiveFractionText,
    Rule,
    list_type,
)
from evalrun_registry.metrics import HEADLINE, falls, gate_metrics


def _join_or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


_RISING: Final = [metric.name for metric in gate_metrics(falls=False)]
_FALLING: Final = [metric.name for metric in gate_metrics(falls=True)]
_METRICS: Final = (*gate_metrics(falls=False), *gate_metrics(falls=True))
GATE_METRICS: Final = sorted(_METRICS, key=lambda metric: bool(metric.number))
"""The metrics by which a gate may decide, those with a k or a turn last."""

LAST_GOOD: Final = "LastGood"
"""A baseline that a schedule fills in."""


class PooledDataset(ApiModel):
    """A dataset of a gate that pools several."""

    name: DatasetName = Field(description="A dataset of this run.")
    weight: Annotated[
        DecimalText | None,
        Field(description='Its weight in the mean, in quotes, e.g. "2"; unset for all: each problem counts the same.'),
        Rule("double(self) > 0.0", 'write a weight above "0", e.g. "1"'),
    ] = None


class ExpectedRange(ApiModel):
    """The range of plausible values for the run's own figure."""

    low: FractionText = Field("0.0", description='Lowest plausible value, in quotes, e.g. "0.3".')
    high: FractionText = Field("1.0", description='Highest plausible value, in quotes, e.g. "0.95".')

    RULES = (Rule("double(self.low) < double(self.high)", "the range is empty: write a low below the high", ".low"),)

    def holds(self, value: float) -> bool:
        """Return whether a value is plausible."""
        return float(self.low) <= value <= float(self.high)


class Gate(ApiModel):
    """A comparison with an earlier run, or with a fixed figure: an interval of the difference decides."""

    baseline: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="Name of an EvalRun here, or the URL of its outputs. In an EvalSchedule also LastGood: the "
            "newest checkpoint whose gates did not fail.",
        ),
        *PLACE_RULES,
        Rule(
            "self == 'LastGood' || self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') || (self.contains('://') && "
            "!self.startsWith('file://'))",
            "write the name of an EvalRun of this namespace, or the URL of its outputs (s3://..., pvc://CLAIM/DIR)",
            place="cluster",
        ),
    ] = None
    anchor: FractionText | None = Field(
        None, description='A fixed figure to compare with instead of a baseline, in quotes, e.g. "0.87".'
    )
    metric: Annotated[
        str,
        Field(
            max_length=64,
            description=f"{_join_or(_RISING)} (k at most protocol.samples; it is measured whether protocol.k lists it "
            f"or not); or one that should fall: {', '.join(_FALLING)}.",
        ),
        Rule(
            f"self.matches('^({'|'.join(metric.pattern for metric in GATE_METRICS)})$')",
            f"write a metric that should rise: {_join_or(_RISING)}; or one that should fall: {_join_or(_FALLING)}",
        ),
    ] = HEADLINE.name
    dataset: DatasetName | None = Field(
        None, description="The dataset of this run that is compared. Exactly one of dataset and datasets is required."
    )
    datasets: list[PooledDataset] = Field(
        [],
        max_length=16,
        description="Datasets that are compared as one. Exactly one of dataset and datasets is required.",
        json_schema_extra=list_type("map", "name"),
    )
    allow_test_role: list[DatasetName] = Field(
        [],
        max_length=64,
        description="Datasets of role test that this gate may use nevertheless; they are not meant for tuning.",
        json_schema_extra=list_type("set"),
    )
    allow_forgeable: bool = Field(
        default=False,
        description="Use verdicts that a program could have forged, such as those of tests that run in its process.",
    )
    max_regression: FractionText = Field(
        "0.0", description='Maximum deterioration of the metric, in quotes: "0.02" is two percentage points.'
    )
    min_improvement: PositiveFractionText | None = Field(
        None, description="Minimum improvement of the metric, in quotes, instead of maxRegression."
    )
    confidence: Annotated[
        DecimalText,
        Field(description='Confidence of the interval, in quotes, "0.5" to "0.999".'),
        Rule("double(self) >= 0.5 && double(self) <= 0.999", 'write a confidence from "0.5" to "0.999", e.g. "0.95"'),
    ] = "0.95"
    sequential: bool = Field(
        default=False,
        description="Decide as soon as the problems drawn so far are enough, by an interval that is valid at every "
        "look.",
    )
    population: Literal["benchmark", "similar"] = Field(
        "benchmark",
        description="For a sequential gate, what it decides about. benchmark: exactly these problems; it has decided "
        "once all are drawn. similar: problems like these; it can remain inconclusive, and then reports how many would "
        "be enough.",
    )
    stop_early: bool = Field(
        default=True,
        description="For a sequential gate: cancel the remaining work once every gate has decided. false: run "
        "everything.",
    )
    keep_passing: bool = Field(
        default=False,
        description="For a sequential gate with stopEarly: cancel the remaining work only of a run that fails. One "
        "that passes is measured whole, and can be a baseline.",
    )
    expected_range: ExpectedRange | None = Field(
        None,
        description="The range of plausible values for the run's own figure. Outside of it the gate is inconclusive "
        "(Implausible) and names likely causes. Unset: every value is plausible.",
    )

    RULES = (
        Rule(
            "has(self.baseline) != has(self.anchor)",
            "write exactly one of baseline (an earlier run) and anchor (a fixed figure)",
            ".baseline",
        ),
        Rule(
            "has(self.dataset) != (size(self.datasets) > 0)",
            "write exactly one of dataset (one) and datasets (several, compared as one)",
            ".dataset",
        ),
        Rule(
            "self.datasets.all(d, has(d.weight)) || !self.datasets.exists(d, has(d.weight))",
            "some datasets have a weight and some have none: give each one a weight, or none",
            ".datasets",
        ),
        Rule(
            "!has(self.minImprovement) || double(self.maxRegression) == 0.0",
            "minImprovement asks for a better run, maxRegression allows a worse one: write one of them",
            ".minImprovement",
        ),
        Rule(
            "!self.sequential || size(self.datasets) == 0",
            "a sequential gate is about one dataset, whose problems come in an order of chance: write a gate for each, "
            "or sequential: false",
            ".sequential",
        ),
        Rule(
            "!self.keepPassing || (self.sequential && self.stopEarly)",
            "keepPassing says which runs are not stopped early: write sequential: true, or remove keepPassing",
            ".keepPassing",
        ),
    )

    @property
    def dataset_names(self) -> tuple[str, ...]:
        """The datasets that it compares."""
        return tuple(each.name for each in self.datasets) or (self.dataset or "",)

    @property
    def label(self) -> str:
        """Its datasets, for people."""
        return " + ".join(self.dataset_names)

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weights of the datasets, in their order; None: each problem counts the same."""
        weights = [each.weight for each in self.datasets if each.weight is not None]
        return tuple(float(each) for each in weights) or None

    @property
    def falls(self) -> bool:
        """Whether the metric should fall."""
        return falls(self.metric)

    @property
    def names_a_run(self) -> bool:
        """Whether the baseline is the name of an EvalRun; otherwise it is a URL, or there is none."""
        return self.baseline is not None and "://" not in self.baseline

    @property
    def anchor_value(self) -> float | None:
        """`anchor` as a number."""
        return None if self.anchor is None else float(self.anchor)

    @property
    def compared_with(self) -> str:
        """Name of the baseline, or the anchor with its figure, for messages."""
        return f"the anchor {self.anchor}" if self.baseline is None else self.baseline

    @property
    def min_gain(self) -> float:
        """The minimum improvement: minImprovement, or -maxRegression. Positive is better, whatever the metric."""
        return -float(self.max_regression) if self.min_improvement is None else float(self.min_improvement)

    @property
    def max_regression_value(self) -> float:
        """`maxRegression` as a number."""
        return float(self.max_regression)

    @property
    def confidence_value(self) -> float:
        """`confidence` as a number."""
        return float(self.confidence)

    @property
    def may_stop(self) -> bool:
        """Whether this gate lets the run skip the remaining problems once it has decided."""
        return self.sequential and self.stop_early
