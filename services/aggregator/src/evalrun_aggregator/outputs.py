"""Writes what a run leaves behind (evaluation.md section 9), in one pass over its results.

Each file is there whole or not at all, and `summary.json` comes last: where it is, the folder is complete.
"""

import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from evalrun_aggregator.atomic_files import write_atomically
from evalrun_aggregator.exporting import ExportReport, RunExports
from evalrun_aggregator.json_text import json_document, json_line
from evalrun_aggregator.metrics import DatasetMetrics, MetricOptions, MetricsAccumulator
from evalrun_aggregator.problem_totals import DatasetTotals
from evalrun_aggregator.qa_logs import QaLogs, QaOptions
from evalrun_aggregator.report.disagreements import DisagreementLog, Disagreements
from evalrun_aggregator.report.document import ReportContent, render_report
from evalrun_aggregator.result_table import result_table
from evalrun_aggregator.results import JsonObject, SampleResult
from evalrun_runtime.exits import BadInputError

SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"
SUMMARY_SCHEMA_VERSION: Final = 1

FinalState: TypeAlias = Literal["Succeeded", "Degraded"]
"""As the phase of an EvalRun says it."""


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """What the outputs say beyond the results themselves."""

    run_info: Mapping[str, object]
    """For audit: written as given, keys sorted. JSON's types only, and no secrets."""
    metrics: MetricOptions
    qa: QaOptions
    decide_gate: Callable[[Mapping[str, DatasetTotals]], JsonObject] | None = None
    """From the run's totals to the `gate` of summary.json; None where the run has no gate."""
    currency: str = ""
    """Of `metrics.gpu_hour_price`; empty where there is no price."""
    export: RunExports | None = None
    """Sends the figures elsewhere before the last files are written; None where the run asks for none."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What `summary.json` says."""

    state: FinalState
    """Degraded: something was not judged."""
    datasets: Mapping[str, DatasetMetrics]
    disagreements: Mapping[str, Disagreements]
    """By dataset: where another comparator would have decided otherwise."""
    gate: JsonObject | None = None
    """What its gate decided; None where it has none."""
    cost: JsonObject | None = None
    """What its GPUs cost in all; None where it had none of its own."""
    exports: ExportReport | None = None
    """What came of its exports; in run_info.json, not here: they are no result."""

    def as_json(self) -> JsonObject:
        """Give summary.json."""
        counts: dict[str, int] = {}
        for metrics in self.datasets.values():
            for name, count in metrics.counts.items():
                if isinstance(count, int):
                    counts[name] = counts.get(name, 0) + count
        gate: JsonObject = {} if self.gate is None else {"gate": self.gate}
        cost: JsonObject = {} if self.cost is None else {"cost": self.cost}
        return {
            "schema": SUMMARY_SCHEMA_VERSION,
            "state": self.state,
            "counts": dict(counts),
            "datasets": {
                name: {**metrics.summary(), "comparators": self._comparators(name, metrics)}
                for name, metrics in self.datasets.items()
            },
            **cost,
            **gate,
        }

    def _comparators(self, name: str, metrics: DatasetMetrics) -> JsonObject:
        accepted = metrics.counts["accepted"]
        found = self.disagreements.get(name, Disagreements())
        return found.as_json(accepted if isinstance(accepted, int) else 0)

    def values(self) -> JsonObject:
        """Give metrics.json: dataset -> metric -> value."""
        return {
            name: {metric: figure.value for metric, figure in metrics.figures.items()}
            for name, metrics in self.datasets.items()
        }


def folder_name(run: str, at: datetime) -> str:
    """Give the name of a run's folder, `<run>_<YYYYMMDD_HHMMSS>`, in UTC."""
    return f"{run}_{at.astimezone(UTC):%Y%m%d_%H%M%S}"


def write_outputs(
    results: Iterable[SampleResult], destination: str, plan: OutputPlan, *, staging: Path | None = None
) -> RunSummary:
    """Write a run's folder and give its summary; results are read once and never held together.

    Args:
        results: every pass and turn, each key once; `results.jsonl` keeps their order.
        destination: the folder itself, as a local path or an fsspec URL (s3://, gs://, ...). Files that are already
            there are replaced; an old summary.json goes first.
        plan: what they say beyond the results.
        staging: where the files of a remote folder are written before they are sent; None: the system's own place for
            temporary files. It must hold all of them.

    Raises:
        BadInputError: the URL cannot be used.
        OSError: a file cannot be written or sent, e.g. the disk is full; it names the file. No summary.json is there.
        ValueError: a key was given twice.
    """
    files, path = resolve_destination(destination)
    if isinstance(files, LocalFileSystem):
        return write_folder(results, Path(path), plan)
    with TemporaryDirectory(prefix="evalrun-outputs-", dir=staging) as folder:
        summary = write_folder(results, Path(folder), plan)
        send_folder(Path(folder), files, path)
    return summary


def resolve_destination(destination: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Give the file system and the path in it that a destination names; nothing is written yet.

    Raises:
        BadInputError: the scheme is unknown, or its package is not installed.
    """
    try:
        files, path = fsspec.core.url_to_fs(destination)
    except (ValueError, ImportError) as error:
        raise BadInputError(f"output {destination}: {' '.join(str(error).split())}") from error
    return files, path


def write_folder(results: Iterable[SampleResult], folder: Path, plan: OutputPlan) -> RunSummary:
    """Write a run's folder on this machine. Raises as `write_outputs` does."""
    (folder / "qa_logs").mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).unlink(missing_ok=True)
    metrics, qa_logs, disagreements = MetricsAccumulator(), QaLogs(plan.qa), DisagreementLog()
    with result_table(folder / "results.jsonl", folder / "results.parquet") as table:
        for result in results:
            metrics.add(result)
            qa_logs.add(result)
            disagreements.add(result)
            table.add(result)
    records = _write_qa_logs(qa_logs, folder / "qa_logs")
    summary = summarise(metrics, disagreements, plan)
    run_info = plan.run_info
    if plan.export is not None:
        exported = plan.export(run_info, summary.datasets, records, folder)
        summary = replace(summary, exports=exported)
        run_info = {**run_info, "exports": exported.entries}
    write_atomically(folder / "run_info.json", json_document(run_info, sort_keys=True))
    write_atomically(folder / "metrics.json", json_document(summary.values()))
    report = ReportContent(summary.as_json(), run_info, metrics.datasets, disagreements.datasets, records)
    write_atomically(folder / REPORT, render_report(report).encode())
    write_atomically(folder / SUMMARY, json_document(summary.as_json()))
    return summary


def summarise(metrics: MetricsAccumulator, disagreements: DisagreementLog, plan: OutputPlan) -> RunSummary:
    """Say how the run ended: degraded where anything was not judged, whatever its gate says."""
    datasets = metrics.finish(plan.metrics)
    complete = all(dataset.complete for dataset in datasets.values())
    gate = None if plan.decide_gate is None else plan.decide_gate(metrics.datasets)
    state: FinalState = "Succeeded" if complete else "Degraded"
    return RunSummary(state, datasets, disagreements.datasets, gate, cost_of(plan))


def cost_of(plan: OutputPlan) -> JsonObject | None:
    """Give what the run's GPUs cost in all: seconds, and money where the spec names a price of a GPU hour."""
    seconds, price = plan.metrics.gpu_seconds, plan.metrics.gpu_hour_price
    if not seconds:
        return None
    money = None if price is None else seconds * price / 3600
    return {"gpu_seconds": seconds, "gpu_hour": price, "currency": plan.currency or None, "money": money}


def send_folder(folder: Path, files: fsspec.AbstractFileSystem, path: str) -> None:
    """Copy a finished folder to another file system, summary.json last.

    Raises:
        OSError: a file cannot be sent; it names the file.
    """
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    names.sort(key=lambda name: name == SUMMARY)
    if files.exists(f"{path}/{SUMMARY}"):
        files.rm_file(f"{path}/{SUMMARY}")
    for name in names:
        target = f"{path}/{name}"
        try:
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
            files.put_file(str(folder / name), target)
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), target) from error


def _write_qa_logs(qa_logs: QaLogs, folder: Path) -> dict[str, list[JsonObject]]:
    records, summary = qa_logs.finish()
    for dataset, lines in records.items():
        # A dataset of the user's own may be called a/b: quoting keeps the file in the folder and names apart.
        path = folder / f"{quote(dataset, safe='')}_qa.jsonl"
        write_atomically(path, b"".join(json_line(line) + b"\n" for line in lines))
    write_atomically(folder / "qa_summary.json", json_document(summary))
    return records
