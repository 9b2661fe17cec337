"""Reads the outputs of a run from a directory or a URL: its summary, run_info and results."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

import fsspec

from evalrun_data.sources import read_rows
from evalrun_data.store_problems import name_read_errors
from evalrun_results.metrics.accumulator import MetricsAccumulator
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.outputs.destination import SUMMARY, SUMMARY_SCHEMA_VERSION, resolve_destination
from evalrun_results.report.disagreements import DisagreementLog
from evalrun_results.samples import JsonObject, SampleResult
from evalrun_results.stored_rows import TOTALS_COLUMNS, parse_result
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    from evalrun_results.report.document import ReportContent

RESULT_FILES: Final = ("results.parquet", "results.jsonl")
"""Names of the results; the first existing file is read."""
MAX_DOCUMENT_BYTES: Final = 64 << 20
"""Maximum bytes of a summary, or of run_info.json."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that has ended."""

    place: str
    """Directory or URL of the run, as the user named it."""
    summary: JsonObject
    run_info: JsonObject
    results_file: str | None
    """None if absent, which is fine for a run without results."""

    @classmethod
    def open(cls, place: str) -> Self:
        """Open the outputs of a run.

        Raises:
            BadInputError: no finished run there, it cannot be reached, or a newer evalrun wrote it.
        """
        files, path = _resolve_place(place)
        summary = _document(files, f"{path}/{SUMMARY}", place)
        if not isinstance(version := summary.get("schema"), int) or version > SUMMARY_SCHEMA_VERSION:
            raise BadInputError(
                f"{place}/{SUMMARY}: unknown schema {version}; this evalrun reads up to {SUMMARY_SCHEMA_VERSION}"
            )
        datasets = summary.get("datasets")
        if not isinstance(datasets, dict):
            raise BadInputError(f"{place}/{SUMMARY}: datasets is missing: name the directory of a run's outputs")
        found = next((name for name in RESULT_FILES if _exists(files, f"{path}/{name}", place)), None)
        if found is None and datasets:
            raise BadInputError(f"{place}: no {' or '.join(RESULT_FILES)}: name the directory of a run's outputs")
        return cls(place, summary, _document(files, f"{path}/run_info.json", place), found)

    @property
    def dataset_names(self) -> list[str]:
        """The datasets of its summary."""
        datasets = self.summary["datasets"]
        return list(datasets) if isinstance(datasets, dict) else []

    @property
    def stopped_early(self) -> bool:
        """Whether its gates, or a race, ended it before it had drawn everything."""
        return self.summary.get("stoppedEarly") is not None

    def results(self, columns: tuple[str, ...] = ()) -> Iterator[SampleResult]:
        """Yield the results. Prompts and ground truths are not stored.

        Args:
            columns: Parquet columns to read; empty reads all.

        Raises:
            BadInputError: the file is broken; it names the row.
        """
        if self.results_file is None or not self.dataset_names:
            return
        for row in read_rows(f"{self.place.rstrip('/')}/{self.results_file}", columns=columns):
            yield parse_result(row)

    def totals(self) -> Mapping[str, DatasetTotals]:
        """Read the results and return the sums that comparisons need. Raises BadInputError like `results`."""
        return self._read(TOTALS_COLUMNS, DisagreementLog())

    def report(self) -> "ReportContent":
        """Read the content of a report. Raises BadInputError like `results`."""
        # Only a report needs the renderer.
        from evalrun_results.report.document import ReportContent

        disagreements = DisagreementLog()
        totals = self._read((*TOTALS_COLUMNS, "disagreeing_comparators"), disagreements)
        return ReportContent(self.summary, self.run_info, totals, disagreements.datasets, self.qa_records())

    def _read(self, columns: tuple[str, ...], disagreements: DisagreementLog) -> Mapping[str, DatasetTotals]:
        accumulator = MetricsAccumulator()
        try:
            for result in self.results(columns):
                accumulator.add(result)
                disagreements.add(result)
        # The document has a key twice.
        except ValueError as error:
            raise BadInputError(f"{self.place}/{self.results_file}: {error}") from error
        return accumulator.datasets

    def qa_records(self) -> dict[str, list[JsonObject]]:
        """Return the QA logs by dataset; empty for a dataset without a log. Raises BadInputError."""
        files, path = _resolve_place(self.place)
        records: dict[str, list[JsonObject]] = {}
        for name in self.dataset_names:
            file = f"qa_logs/{quote(name, safe='')}_qa.jsonl"
            if _exists(files, f"{path}/{file}", self.place):
                rows = read_rows(f"{self.place.rstrip('/')}/{file}")
                records[name] = [json.loads(json.dumps(row.values)) for row in rows]
        return records


def _resolve_place(place: str) -> tuple[fsspec.AbstractFileSystem, str]:
    if place.startswith("pvc://"):
        raise BadInputError(f"{place}: a volume can be read only in its cluster: name a directory or an fsspec URL")
    files, path = resolve_destination(place)
    return files, path.rstrip("/")


def _exists(files: fsspec.AbstractFileSystem, path: str, place: str) -> bool:
    with name_read_errors(place):
        return bool(files.exists(path))


def _document(files: fsspec.AbstractFileSystem, path: str, place: str) -> JsonObject:
    name = path.rpartition("/")[2]
    with name_read_errors(f"{place}/{name}"):
        try:
            found = files.info(path)
            if found["type"] != "file":
                raise BadInputError(f"{place}/{name}: is no regular file: put the file itself there")
            if (found.get("size") or 0) > MAX_DOCUMENT_BYTES:
                raise BadInputError(f"{place}/{name}: is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
            text = files.cat_file(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BadInputError(f"{place}: no finished run there: {name} is missing") from error
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{place}/{name}: is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadInputError(f"{place}/{name}: is not a JSON object: name the directory of a run's outputs")
    return content


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON's")
