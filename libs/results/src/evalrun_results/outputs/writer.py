"""Writes a run's output files (docs/outputs.md) in a single pass over its results.

Each file is there whole or not at all, and `summary.json` comes last: where it is, the directory is complete.
"""

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from evalrun_data.store_problems import Kind, store_problem
from evalrun_results.comparisons.gate import GateResult, overall
from evalrun_results.exports.run_exports import ExportReport, RunExports
from evalrun_results.failure_classes import FailureLog
from evalrun_results.json_text import json_document, json_line
from evalrun_results.metrics.accumulator import DatasetMetrics, MetricOptions, MetricsAccumulator
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.outputs.destination import REPORT, SUMMARY, SUMMARY_SCHEMA_VERSION, resolve_destination
from evalrun_results.outputs.qa_logs import QaLogs, QaOptions
from evalrun_results.outputs.result_table import result_table
from evalrun_results.outputs.stopped_early import StoppedEarly, apply_anytime_intervals
from evalrun_results.published_figures import implausible_figures
from evalrun_results.report.disagreements import DisagreementLog, Disagreements
from evalrun_results.report.document import ReportContent, render_report
from evalrun_results.run_warnings import RunWarnings
from evalrun_results.samples import JsonObject, SampleResult
from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs"})
"""Protocols without directories: there `makedirs` would create the bucket, e.g. one whose name was mistyped."""
PROBE: Final = ".evalrun-probe"

Wait: TypeAlias = Callable[[str], bool]
"""Waits after a failure of the store, given what is wrong; returns whether to try again."""

FinalState: TypeAlias = Literal["Succeeded", "Degraded"]
"""The state in the words of an EvalRun's phase."""


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """Facts about a run that the outputs contain besides the results."""

    run_info: Mapping[str, object]
    """For audit: written as given, keys sorted. JSON's types only, and no secrets."""
    metrics: MetricOptions
    qa: QaOptions
    decide_gates: Callable[[Mapping[str, DatasetTotals]], Sequence[GateResult]] | None = None
    """Decides the gates from the run's totals; None if the run has none."""
    stopped: StoppedEarly | None = None
    """Early stop by the gates; None if they did not stop the run."""
    samples_per_seed: int | None = None
    """Completions per problem and seed of a run with several seeds; None: it has a single seed."""
    currency: str = ""
    """Currency of the prices in `metrics`; empty without a price."""
    export: RunExports | None = None
    """Sends the metrics elsewhere before the last files are written; None if the run asks for no export."""
    audit_files: Mapping[str, bytes] = field(default_factory=dict)
    """Manifests and audits of the data, by their names in `audit/`."""
    partial: str = ""
    """Reason why the results are not those of every problem; empty if they are."""
    generation: JsonObject | None = None
    """Busy and idle seconds of its replicas; None if not measured."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The content of `summary.json`."""

    state: FinalState
    """Degraded: something was not judged."""
    datasets: Mapping[str, DatasetMetrics]
    disagreements: Mapping[str, Disagreements]
    """Completions that another comparator would have decided otherwise, by dataset."""
    gates: Sequence[GateResult] = ()
    """The decisions of its gates."""
    stopped: StoppedEarly | None = None
    """Early stop by the gates; None if they did not stop it."""
    cost: JsonObject | None = None
    """Total cost of its GPUs; None if it used no GPUs of its own."""
    warnings: Sequence[str] = ()
    """Reasons why its figures may mislead, one line each."""
    partial: str = ""
    """Reason why the results are not those of every problem; empty if they are."""
    generation: JsonObject | None = None
    """Busy and idle seconds of its replicas; None if not measured."""
    exports: ExportReport | None = None
    """Results of its exports; written to run_info.json only."""
    failures: FailureLog = field(default_factory=FailureLog)
    """Classes of failed answers."""

    def as_json(self) -> JsonObject:
        """Return summary.json."""
        counts: dict[str, int] = {}
        for metrics in self.datasets.values():
            for name, count in metrics.counts.items():
                if isinstance(count, int):
                    counts[name] = counts.get(name, 0) + count
        gate: JsonObject = {} if not self.gates else {"gate": overall(self.gates)}
        if len(self.gates) > 1:
            gate["gates"] = [each.as_json() for each in self.gates]
        stopped: JsonObject = {} if self.stopped is None else {"stoppedEarly": self.stopped.as_json()}
        cost: JsonObject = {} if self.cost is None else {"cost": self.cost}
        partial: JsonObject = {"partial": self.partial} if self.partial else {}
        generation: JsonObject = {} if self.generation is None else {"generation": self.generation}
        return {
            "schema": SUMMARY_SCHEMA_VERSION,
            "state": self.state,
            **partial,
            "warnings": list(self.warnings),
            "counts": dict(counts),
            "datasets": {
                name: {
                    **metrics.summary(),
                    "comparators": self._comparators(name, metrics),
                    "failures": self.failures.as_json(name),
                }
                for name, metrics in self.datasets.items()
            },
            **generation,
            **cost,
            **gate,
            **stopped,
        }

    @property
    def gate(self) -> JsonObject | None:
        """The combined decision of its gates; None without gates."""
        return overall(self.gates) if self.gates else None

    def _comparators(self, name: str, metrics: DatasetMetrics) -> JsonObject:
        accepted = metrics.counts["accepted"]
        found = self.disagreements.get(name, Disagreements())
        return found.as_json(accepted if isinstance(accepted, int) else 0)

    def values(self) -> JsonObject:
        """Return metrics.json: dataset -> metric -> value."""
        return {
            name: {metric: figure.value for metric, figure in metrics.figures.items()}
            for name, metrics in self.datasets.items()
        }


def write_outputs(
    results: Iterable[SampleResult],
    destination: str,
    plan: OutputPlan,
    *,
    staging: Path | None = None,
    wait: Wait | None = None,
    sign: Callable[[Path], None] | None = None,
) -> RunSummary:
    """Write a run's directory and return its summary. Results are read once and never all held in memory.

    Args:
        results: every pass and turn, each key once; `results.jsonl` keeps their order.
        destination: the directory itself, as a local path or an fsspec URL (s3://, gs://, ...). Files that are already
            there are replaced; an old summary.json goes first.
        plan: content of the outputs beyond the results.
        staging: where the files of a remote directory are written before they are sent; None uses the system's
            temporary directory. It must hold all of them.
        wait: called when a store refuses a file; None fails at the first refusal.
        sign: adds an attestation to the finished directory; None adds none.

    Raises:
        BadInputError: the URL cannot be used.
        OSError: a file cannot be written or sent, e.g. the disk is full; it names the file. No summary.json is there.
        ValueError: a key was given twice.
    """
    files, path = resolve_destination(destination)
    if isinstance(files, LocalFileSystem):
        summary = write_directory(results, Path(path), plan)
        if sign is not None:
            sign(Path(path))
        return summary
    with TemporaryDirectory(prefix="evalrun-outputs-", dir=staging) as directory:
        summary = write_directory(results, Path(directory), plan)
        if sign is not None:
            sign(Path(directory))
        send_directory(Path(directory), files, path, wait)
    return summary


def probe_destination(destination: str) -> None:
    """Write an empty object to the destination and delete it, so that errors show before any work.

    Where it may be written but not deleted it stays, empty.

    Raises:
        BadInputError: the store refuses the credentials, or there is no such bucket.
        OSError: anything else, which may pass: the store cannot be reached, is full or is failing.
    """
    files, path = resolve_destination(destination)
    target = f"{path.rstrip('/')}/{PROBE}"
    try:
        _make_directory(files, target)
        files.pipe_file(target, b"")
    except Exception as error:
        problem = store_problem(error)
        if problem.kind in {Kind.REFUSED, Kind.MISSING}:
            raise BadInputError(f"output {destination}: cannot be written: {problem.text}") from error
        raise _as_os_error(error, problem.text, f"output {destination}") from error
    try:
        files.rm_file(target)
    except Exception as error:  # noqa: BLE001 - each store's client has classes of its own, with no other base
        logger.info("%s stays, empty: %s", target, store_problem(error).text)


def write_directory(results: Iterable[SampleResult], directory: Path, plan: OutputPlan) -> RunSummary:
    """Write a run's directory on this machine. Raises as `write_outputs` does."""
    (directory / "qa_logs").mkdir(parents=True, exist_ok=True)
    (directory / SUMMARY).unlink(missing_ok=True)
    metrics = MetricsAccumulator(plan.samples_per_seed)
    qa_logs, disagreements = QaLogs(plan.qa), DisagreementLog()
    warnings, failures = RunWarnings(), FailureLog()
    with result_table(directory / "results.jsonl", directory / "results.parquet") as table:
        for result in results:
            metrics.add(result)
            qa_logs.add(result)
            disagreements.add(result)
            warnings.add(result)
            failures.add(result)
            table.add(result)
    for name, content in plan.audit_files.items():
        (directory / "audit" / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / "audit" / name, content)
    records = _write_qa_logs(qa_logs, directory / "qa_logs")
    summary = summarise(metrics, disagreements, plan)
    implausible = implausible_figures(_read_model(plan.run_info), summary.datasets, metrics.datasets)
    lines = [*_partial_lines(summary), *warnings.lines(), *implausible]
    summary = replace(summary, warnings=lines, failures=failures)
    run_info = plan.run_info
    if plan.export is not None:
        exported = plan.export(run_info, summary.datasets, records, directory)
        summary = replace(summary, exports=exported)
        run_info = {**run_info, "exports": exported.entries}
    write_atomically(directory / "run_info.json", json_document(run_info, sort_keys=True))
    write_atomically(directory / "metrics.json", json_document(summary.values()))
    report = ReportContent(summary.as_json(), run_info, metrics.datasets, disagreements.datasets, records)
    write_atomically(directory / REPORT, render_report(report).encode())
    write_atomically(directory / SUMMARY, json_document(summary.as_json()))
    return summary


def _read_model(run_info: Mapping[str, object]) -> str:
    """Return the path of the run's model; empty where the run was given answers, or has an adapter."""
    spec = run_info.get("spec")
    model = spec.get("model") if isinstance(spec, Mapping) else None
    path = model.get("path") if isinstance(model, Mapping) and not model.get("adapter") else None
    return path if isinstance(path, str) else ""


def summarise(metrics: MetricsAccumulator, disagreements: DisagreementLog, plan: OutputPlan) -> RunSummary:
    """Return the run's state: degraded if anything was not judged, regardless of its gates."""
    datasets = metrics.finish(plan.metrics)
    if plan.stopped is not None:
        datasets = {
            name: apply_anytime_intervals(found, metrics.datasets[name], plan.stopped, name)
            for name, found in datasets.items()
        }
    complete = all(dataset.complete for dataset in datasets.values())
    gates = () if plan.decide_gates is None else plan.decide_gates(metrics.datasets)
    state: FinalState = "Succeeded" if complete else "Degraded"
    return RunSummary(
        state,
        datasets,
        disagreements.datasets,
        gates,
        plan.stopped,
        compute_cost(
            plan,
            sum(problem.judge_seconds for totals in metrics.datasets.values() for problem in totals.problems.values()),
        ),
        partial=plan.partial,
        generation=plan.generation,
    )


def _partial_lines(summary: RunSummary) -> list[str]:
    if not summary.partial:
        return []
    missing = sum(metrics.not_judged for metrics in summary.datasets.values())
    answers = "1 answer has no verdict and counts" if missing == 1 else f"{missing} answers have no verdict and count"
    lacking = f": {answers} neither way" if missing else ""
    return [f"these results are partial: {summary.partial}{lacking}"]


def compute_cost(plan: OutputPlan, cpu_seconds: float) -> JsonObject | None:
    """Return the total cost of the run: seconds of GPUs and of judged programs, and money by the spec's prices.

    Returns None where the run had no GPUs of its own and the spec has no price of a CPU hour.
    """
    gpu_seconds, gpu_hour, cpu_hour = plan.metrics.gpu_seconds, plan.metrics.gpu_hour_price, plan.metrics.cpu_hour_price
    parts = [
        seconds * price / 3600
        for seconds, price in ((gpu_seconds, gpu_hour), (cpu_seconds, cpu_hour))
        if seconds and price is not None
    ]
    if not gpu_seconds and cpu_hour is None:
        return None
    return {
        "gpu_seconds": gpu_seconds or None,
        "gpu_hour": gpu_hour,
        "cpu_seconds": cpu_seconds,
        "cpu_hour": cpu_hour,
        "currency": plan.currency or None,
        "money": sum(parts) if parts else None,
    }


def send_directory(directory: Path, files: fsspec.AbstractFileSystem, path: str, wait: Wait | None = None) -> None:
    """Copy a finished directory to another file system, summary.json last.

    Args:
        directory: the finished directory.
        files: the other file system.
        path: the directory there.
        wait: called when a file cannot be sent; None fails at the first error.

    Raises:
        OSError: a file cannot be sent; it names the file.
    """
    names = sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file())
    names.sort(key=lambda name: name == SUMMARY)

    def remove_summary(target: str) -> None:
        files.invalidate_cache()
        if files.exists(target):
            files.rm_file(target)

    def put(target: str) -> None:
        _make_directory(files, target)
        files.put_file(str(directory / target.removeprefix(f"{path}/")), target)

    _insist(remove_summary, f"{path}/{SUMMARY}", wait)
    for name in names:
        _insist(put, f"{path}/{name}", wait)


def _insist(step: Callable[[str], None], target: str, wait: Wait | None) -> None:
    """Do a step, and repeat it while `wait` agrees. Raises OSError, which names the target."""
    while True:
        try:
            step(target)
        # Each store's client has its own classes, without a common base.
        except Exception as error:
            problem = store_problem(error).text
            if wait is None or not wait(f"{target}: {problem}"):
                raise _as_os_error(error, problem, target) from error
        else:
            return


def _as_os_error(error: Exception, problem: str, target: str) -> OSError:
    number = error.errno if isinstance(error, OSError) else None
    return OSError(number or errno.EIO, problem, target)


def _make_directory(files: fsspec.AbstractFileSystem, target: str) -> None:
    protocols = {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)
    if not protocols & OBJECT_STORES:
        files.makedirs(target.rpartition("/")[0], exist_ok=True)


def _write_qa_logs(qa_logs: QaLogs, directory: Path) -> dict[str, list[JsonObject]]:
    records, summary = qa_logs.finish()
    for dataset, lines in records.items():
        # A dataset of the user's own may be called a/b: quoting keeps the file in the directory and names apart.
        path = directory / f"{quote(dataset, safe='')}_qa.jsonl"
        write_atomically(path, b"".join(json_line(line) + b"\n" for line in lines))
    write_atomically(directory / "qa_summary.json", json_document(summary))
    return records
