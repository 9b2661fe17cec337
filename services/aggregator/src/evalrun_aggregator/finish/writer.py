"""Passes a decided run to the writer of its outputs."""

from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from evalrun_aggregator.finish.catalogue_entry import add_to_catalogue
from evalrun_aggregator.finish.finisher import OutputJob
from evalrun_aggregator.run_end import DecidedGate, Interval, RunEnd
from evalrun_registry.metrics import HEADLINE
from evalrun_results.exports.run_exports import make_exports
from evalrun_results.metrics.run_options import options_of_spec
from evalrun_results.outputs.destination import resolve_destination
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, probe_destination, write_outputs
from evalrun_runtime.exits import BadInputError


def check_destination(destination: str, *, first_start: bool) -> None:
    """Refuse a place where outputs could not be written at the end, before anything is generated. Blocking.

    Args:
        destination: a path or fsspec URL.
        first_start: whether this is the first start. A remote place is checked only then: later the run has work to
            lose, and a refusal may be over by its end.

    Raises:
        BadInputError: the URL cannot be used, the directory cannot be made, or the store refuses it permanently.
        OSError: the store cannot be reached, is full or is failing.
    """
    files, path = resolve_destination(destination)
    if isinstance(files, LocalFileSystem):
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"output {destination}: {error.strerror}: {error.filename}") from error
    elif first_start:
        probe_destination(destination)


def write_run_outputs(job: OutputJob) -> RunEnd:
    """Write the outputs, summary.json last. Blocking. Raises OSError."""
    spec = job.order.spec
    made_elsewhere = job.order.responses is not None
    plan = OutputPlan(
        run_info=job.run_info,
        audit_files=job.audit_files,
        metrics=options_of_spec(
            spec,
            gpu_seconds=job.gpu_seconds,
            is_made_elsewhere=made_elsewhere,
            is_rejudged=job.order.rejudge is not None,
            ks=job.order.k,
        ),
        qa=QaOptions(
            temperature=None if made_elsewhere else spec.protocol.temperature_value,
            max_new_tokens=None if made_elsewhere else spec.protocol.max_new_tokens,
        ),
        samples_per_seed=spec.protocol.samples if spec.protocol.seeds > 1 and not made_elsewhere else None,
        currency="" if spec.cost is None else spec.cost.currency,
        decide_gates=job.decide_gates,
        stopped=job.stopped,
        partial=job.partial,
        generation=None if job.generation is None else {**job.generation()},
        export=make_exports(job.order, scratch_in=job.staging, seconds=job.export_seconds),
    )
    signature = job.signature
    summary = write_outputs(
        job.samples(),
        job.order.output_dir,
        plan,
        staging=job.staging,
        wait=job.wait,
        sign=None if signature is None else signature.write,
    )
    accepted = {}
    for name, metrics in summary.datasets.items():
        figure = metrics.figures.get(HEADLINE.name)
        if figure is not None and figure.value is not None:
            low = figure.value if figure.low is None else figure.low
            high = figure.value if figure.high is None else figure.high
            accepted[name] = Interval(figure.value, low, high)
    gate = None if summary.gate is None else DecidedGate(str(summary.gate["reason"]), str(summary.gate["message"]))
    exports = summary.exports
    signed_by = "" if signature is None else signature.key_id
    not_listed = add_to_catalogue(job.order.output_dir, signed_by=signed_by)
    warnings = [*([] if exports is None else exports.warnings), *([not_listed] if not_listed else [])]
    return RunEnd(
        job.finished_at,
        job.order.output_dir,
        accepted,
        gate,
        wandb_url="" if exports is None else exports.wandb_url,
        attested_by=signed_by,
        warnings=tuple(warnings),
        notices=tuple(summary.warnings),
    )
