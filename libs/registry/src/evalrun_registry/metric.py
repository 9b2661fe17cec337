"""The description of a metric: its name, unit, direction and interval, and where it is shown, exported and gated."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Unit(Enum):
    """The unit of a metric's value."""

    SHARE = "share of 1, shown as a percentage"
    SCORE = "whatever a grader returns"
    SECONDS = "seconds"
    NUMBER = "number"


class Interval(Enum):
    """Kind of statistic over problems, which decides the method of a metric's interval (docs/outputs.md)."""

    PROPORTION = "mean over problems of hits / trials; Wilson's interval where every problem has one trial"
    MEAN_SHARE = "mean over problems of values from 0 to 1; values outside of that range are treated as MEAN"
    MEAN = "mean over problems of an amount"
    RATIO = "sum over problems / sum over problems"
    PERCENTILE = "percentile over problems"


class Measured(StrEnum):
    """The runs that have a metric. The value of a protocol is its name in the spec."""

    ALWAYS = "every run"
    SAMPLES = "EVAL@k"
    BUDGET = "EVAL@budget"
    TURNS = "EVAL@turns"
    REPEATS = "noiseFloorRepeats"


PROTOCOLS: Final = (Measured.SAMPLES, Measured.BUDGET, Measured.TURNS)
"""The protocols that measure metrics which other runs lack."""


class Table(Enum):
    """A table for people."""

    END = "the figures of every dataset, in a terminal at the end of a run"
    RESULTS = "further figures below these, for runs that have them"
    HEADLINE = "the top of report.html"
    TURNS = "the figures by turn in report.html"
    COST = "the cost of a solved problem in report.html"
    COMPARISON = "the differences between runs"


@dataclass(frozen=True, slots=True)
class Column:
    """The position of a metric in a table: a column, or a row of a comparison."""

    table: Table
    rank: int
    """Metrics of a table stand in the order of their ranks."""
    heading: str = ""
    """Empty: the metric's title."""
    prominent: bool = False
    """Show the value large, or its interval in a column or bar of its own."""
    first: int = 1
    """Least k or turn that the table shows."""


NUMBERS: Final = {"<k>": "[1-9][0-9]{0,3}", "<t>": "[1-9][0-9]?"}
"""The patterns of the number that ends some names, by its placeholder: k of pass@k, a turn from 1."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric, or of one metric per k or per turn."""

    name: str
    """Name in summary.json. `<k>` or `<t>` at the end stands for a number."""
    title: str
    """Title in texts and tables, with the same `<k>` or `<t>`."""
    formula: str
    """Formula for docs/outputs.md; neighbours with the same formula share a row there."""
    unit: Unit = Unit.SHARE
    interval: Interval = Interval.PROPORTION
    falls: bool = False
    """Direction: whether a lower value is better."""
    measured: Measured = Measured.ALWAYS
    gates: bool = False
    """Whether a gate may decide by it."""
    columns: tuple[Column, ...] = ()
    percentile: int = 0
    """The percentile of an `Interval.PERCENTILE`."""
    first: int = 1
    """Least k or turn for which the metric exists."""

    @property
    def number(self) -> str:
        """`<k>` or `<t>` if the name ends with it, else empty."""
        return next((number for number in NUMBERS if self.name.endswith(number)), "")

    @property
    def stem(self) -> str:
        """The name without `<k>` or `<t>`."""
        return self.name.removesuffix(self.number) if self.number else self.name

    @property
    def pattern(self) -> str:
        """A regular expression of its names."""
        return self.stem + NUMBERS.get(self.number, "")

    @property
    def is_share(self) -> bool:
        """Whether values are shares of 1."""
        return self.unit is Unit.SHARE

    def column(self, table: Table) -> Column | None:
        """Return the metric's place in a table, or None if the table does not show it."""
        return next((column for column in self.columns if column.table is table), None)

    def to_named(self, number: int) -> "NamedMetric":
        """Return the metric for a k or a turn. A metric without a number ignores `number`."""
        return NamedMetric(self, number if self.number else 0)


@dataclass(frozen=True, slots=True)
class NamedMetric:
    """A metric under one of its names: for one k or one turn if its name has a number."""

    metric: Metric
    number: int
    """The k or the turn; 0 if the name has none."""

    @property
    def name(self) -> str:
        """Return the metric's name in summary.json."""
        return self._fill_number(self.metric.name)

    @property
    def title(self) -> str:
        """Return the metric's title in texts."""
        return self._fill_number(self.metric.title)

    def series(self, subject: str = "") -> str:
        """Return the Prometheus series of the metric, e.g. `evalrun_run_accepted_at_1` for the subject `run`."""
        return "_".join(part for part in ("evalrun", subject, self.name) if part)

    def render_heading(self, column: Column) -> str:
        """Return the heading in a table."""
        return self._fill_number(column.heading) if column.heading else self.title

    def _fill_number(self, text: str) -> str:
        return text.replace(self.metric.number, str(self.number)) if self.metric.number else text


def export_name(dataset: str, figure: str) -> str:
    """Return the key under which WandB and MLflow get a figure of a dataset."""
    return f"eval/{dataset}/{figure}"
