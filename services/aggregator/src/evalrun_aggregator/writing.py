"""Hands a run that is decided to the writer of its outputs."""

from dataclasses import replace
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from evalrun_aggregator.exporting import exports_of
from evalrun_aggregator.finishing import OutputJob, Written
from evalrun_aggregator.gating import gate_of
from evalrun_aggregator.metrics import MetricOptions
from evalrun_aggregator.outputs import OutputPlan, resolve_destination, write_outputs
from evalrun_aggregator.qa_logs import QaOptions
from evalrun_aggregator.run import DecidedGate, Interval
from evalrun_runtime.exits import BadInputError

ACCEPTED_AT_1 = "accepted_at_1"


def check_destination(destination: str) -> None:
    """Refuse, before anything is generated, a place where outputs could not be written at the end.

    A remote place is only checked for its scheme: nothing is written there before the end.

    Raises:
        BadInputError: the URL cannot be used, or the folder cannot be made.
    """
    files, path = resolve_destination(destination)
    if isinstance(files, LocalFileSystem):
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"output {destination}: {error.strerror}: {error.filename}") from error


def write_run_outputs(job: OutputJob) -> Written:
    """Write the outputs; summary.json last. Blocking. Raises OSError."""
    spec = job.order.spec
    plan = OutputPlan(
        run_info=job.run_info,
        metrics=MetricOptions(
            ks=() if spec.protocol.budget else tuple(spec.protocol.k) or None,
            budget=spec.protocol.budget is not None,
            gpu_seconds=job.gpu_seconds,
            gpu_hour_price=None if spec.cost is None else float(spec.cost.gpu_hour_value),
            throughput=job.order.rejudge is None,
        ),
        qa=QaOptions(
            temperature=spec.protocol.temperature_value,
            max_new_tokens=spec.protocol.max_new_tokens,
        ),
        currency="" if spec.cost is None else spec.cost.currency,
        decide_gate=None if spec.gate is None else gate_of(spec.gate, job.order.base_dir),
        export=exports_of(job.order, scratch_in=job.staging, seconds=job.export_seconds),
    )
    summary = write_outputs(job.samples(), job.order.output_dir, plan, staging=job.staging)
    accepted = {}
    for name, metrics in summary.datasets.items():
        figure = metrics.figures.get(ACCEPTED_AT_1)
        if figure is not None and figure.value is not None:
            low = figure.value if figure.low is None else figure.low
            high = figure.value if figure.high is None else figure.high
            accepted[name] = Interval(figure.value, low, high)
    gate = None if summary.gate is None else DecidedGate(str(summary.gate["reason"]), str(summary.gate["message"]))
    written = Written(job.order.output_dir, accepted, gate)
    if summary.exports is None:
        return written
    return replace(written, wandb_url=summary.exports.wandb_url, warnings=summary.exports.warnings)
