"""Results of one run: metrics, verdicts, data frames, and what a notebook shows of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evalrun._html import html_lines, html_table
from evalrun_cli.comparisons import text as words
from evalrun_registry.metrics import HEADLINE
from evalrun_runtime.exits import BadInputError, ExitCode

# The packages are imported where they are used, because each costs 0.3 s and more.
if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

LINES, TABLE = "results.jsonl", "results.parquet"


class Estimate(NamedTuple):
    """A metric's value with its 95 % interval. Bounds are None where no interval is defined."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """The outcome of one test of one answer."""

    case_index: int
    status: str
    """Status in docs/verdicts.md, e.g. `wrong_answer`."""
    input: str
    expected_output: str
    stdout: str
    stderr: str
    reason: str
    """Further explanation; empty if the status says it all."""

    @property
    def passed(self) -> bool:
        """Whether the test passed."""
        return self.status == "success"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's verdict on one answer."""

    dataset: str
    problem_id: str
    sample: int
    turn: int
    repeat: int
    """Noise-floor pass; 0 is the run itself."""
    judged: bool
    """Whether there is a verdict. An infrastructure failure is not judged, and never a wrong answer."""
    accepted: bool | None
    """Whether every test passed; None if the answer was not judged."""
    pass_ratio: float | None
    score: float | None
    """Score by the dataset's grader; None without one."""
    final_status: str
    not_judged_reason: str
    response: str
    code: str
    """Program found in the response."""
    tests: tuple[TestVerdict, ...]

    def __repr__(self) -> str:
        passed = sum(test.passed for test in self.tests)
        return f"<Verdict {self.dataset} {self.problem_id} {self.final_status}, {passed} of {len(self.tests)} tests>"


@dataclass(frozen=True, repr=False)
class RunResult:
    """Results of a run, in its output directory."""

    place: str | Path
    """Directory, or URL, of its outputs (docs/outputs.md)."""
    summary: Mapping[str, Any]
    """Content of its summary.json."""
    exit_code: ExitCode
    """Exit code of the equivalent command: DEGRADED if samples were not judged, and the gate's decision."""

    @property
    def directory(self) -> Path:
        """Directory of its outputs. Raises BadInputError if they are at a URL."""
        if "://" in str(self.place):
            raise BadInputError(f"{self.place} is no local directory: use .place")
        return Path(self.place)

    @property
    def state(self) -> str:
        """`Succeeded`, or `Degraded` if samples were not judged."""
        return str(self.summary["state"])

    @property
    def warnings(self) -> list[str]:
        """Reasons why the metrics may mislead, one line each."""
        return [str(line) for line in self.summary["warnings"]]

    @property
    def datasets(self) -> list[str]:
        """Names of its datasets."""
        return list(self.summary["datasets"])

    def metric(self, dataset: str, name: str = HEADLINE.name) -> float | None:
        """Return a metric's value, or None if it could not be measured.

        Raises:
            BadInputError: the run has no such dataset or metric; the message lists those that it has.
        """
        estimate = self.estimate(dataset, name)
        return None if estimate is None else estimate.value

    def estimate(self, dataset: str, name: str = HEADLINE.name) -> Estimate | None:
        """Return a metric's value with its interval, or None if it could not be measured. Raises as `metric` does."""
        datasets = self.summary["datasets"]
        if dataset not in datasets:
            raise BadInputError(f"{self.place}: no dataset {dataset!r}: it has {', '.join(datasets)}")
        metrics = datasets[dataset]["metrics"]
        if name not in metrics:
            raise BadInputError(f"{self.place}: {dataset} has no metric {name!r}: it has {', '.join(metrics)}")
        found = metrics[name]
        if found["value"] is None:
            return None
        return Estimate(float(found["value"]), found.get("low"), found.get("high"))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of results.jsonl as dicts: one per answer, with its tests."""
        from evalrun_data.sources import read_rows

        for row in read_rows(f"{str(self.place).rstrip('/')}/{LINES}"):
            yield dict(row.values)

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdict of every answer, also of those that were not judged."""
        for row in self.rows():
            tests = tuple(TestVerdict(**{name: test[name] for name in TestVerdict.__slots__}) for test in row["tests"])
            yield Verdict(**{name: row[name] for name in Verdict.__slots__ if name != "tests"}, tests=tests)

    def failed(self, dataset: str | None = None) -> list[Verdict]:
        """Return the verdicts of the answers that were judged and not accepted.

        Args:
            dataset: name of the only dataset whose answers are returned; None: all datasets.
        """
        return [
            verdict
            for verdict in self.verdicts()
            if verdict.accepted is False and verdict.repeat == 0 and dataset in (None, verdict.dataset)
        ]

    def not_judged(self) -> list[Verdict]:
        """Return the answers without a verdict. `not_judged_reason` says why."""
        return [verdict for verdict in self.verdicts() if not verdict.judged]

    def to_arrow(self) -> "pa.RecordBatchReader":
        """Return the rows as a stream of Arrow batches, read from results.parquet one row group after another.

        Raises:
            BadInputError: results.parquet is missing.
        """
        import pyarrow as pa
        from pyarrow import parquet

        from evalrun_data.sources import open_source

        place = f"{str(self.place).rstrip('/')}/{TABLE}"
        with open_source(place, Path()) as stream:
            schema = parquet.ParquetFile(stream).schema_arrow

        def batches() -> Iterator[pa.RecordBatch]:
            with open_source(place, Path()) as stream:
                yield from parquet.ParquetFile(stream).iter_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the rows to any reader of the Arrow stream protocol: DuckDB, Polars, pandas, pyarrow.table."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas data frame. Needs pandas, which evalrun does not install."""
        _require("pandas")
        frame: pd.DataFrame = self.to_arrow().read_pandas()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a Polars data frame. Needs polars, which evalrun does not install."""
        _require("polars")
        import polars as pl

        return pl.DataFrame(self)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}: {self._shown(name)}" for name in self.datasets)
        return f"<RunResult {self.state} {figures} in {self.place}>"

    def _shown(self, dataset: str) -> str:
        value = self.metric(dataset)
        return "-" if value is None else f"{100 * value:.1f} %"

    def _repr_html_(self) -> str:
        rows = []
        for dataset in self.datasets:
            estimate, counts = self.estimate(dataset), self.summary["datasets"][dataset].get("counts", {})
            shown = [str(counts.get(name, "-")) for name in ("accepted", "judged", "not_judged")]
            rows.append([dataset, self._shown(dataset), _interval(estimate), *shown])
        headings = [f"dataset ({self.state})", HEADLINE.title, "95 % interval", "accepted", "judged", "not judged"]
        return html_table(headings, rows) + html_lines(self.warnings) + html_lines([f"in {self.place}"])


def _interval(estimate: Estimate | None) -> str:
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{words.value(HEADLINE.name, estimate.low)} to {words.value(HEADLINE.name, estimate.high)}"


def _require(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise BadInputError(f"{package} is not installed: run pip install {package}")
