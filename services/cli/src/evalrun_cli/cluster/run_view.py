"""Formats an EvalRun of a cluster: progress line, status tables, exit code. Pure."""

from collections.abc import Iterator
from datetime import datetime

from rich import box
from rich.table import Table
from rich.text import Text

from evalrun_api.v1alpha1 import Condition, ConditionType, DatasetStatus, EvalRun, EvalRunStatus, Reason, find_condition
from evalrun_registry.metrics import HEADLINE
from evalrun_runtime.exits import ExitCode

TELLING = {
    "Pending": (ConditionType.ACCEPTED,),
    "Preparing": (ConditionType.CLUSTER_READY, ConditionType.GENERATED),
    "Generating": (ConditionType.GENERATED,),
    "Judging": (ConditionType.JUDGED,),
    "Suspended": (ConditionType.SUSPENDED,),
}
"""Conditions that explain a phase, by phase; Complete for an ended run."""
STYLES = {"True": "green", "False": "dim", "Unknown": "yellow"}


def get_status(run: EvalRun) -> EvalRunStatus:
    """Return a run's status; empty if the operator has not processed the run yet."""
    return run.status or EvalRunStatus.model_validate({})


def is_complete(run: EvalRun) -> bool:
    """Return whether the run has ended."""
    return _holds(run, ConditionType.COMPLETE)


def exit_code(run: EvalRun) -> ExitCode:
    """Return the exit code of a finished run. A failed gate outranks a degraded run; an inconclusive gate does not."""
    status = get_status(run)
    if not _holds(run, ConditionType.SUCCEEDED):
        why = find_condition(status, ConditionType.COMPLETE)
        return ExitCode.BAD_INPUT if why is not None and why.reason == Reason.INVALID_SPEC else ExitCode.FAILED
    gate = find_condition(status, ConditionType.GATE_PASSED)
    if gate is not None and gate.status == "False":
        return ExitCode.GATE_FAILED
    if _holds(run, ConditionType.DEGRADED):
        return ExitCode.DEGRADED
    undecided = gate is not None and gate.reason in {Reason.INCONCLUSIVE, Reason.BASELINE_NOT_FOUND, Reason.IMPLAUSIBLE}
    return ExitCode.GATE_INCONCLUSIVE if undecided else ExitCode.SUCCEEDED


def progress_line(run: EvalRun, now: datetime) -> str:
    """Return a line with seconds since the start, phase, counts of each dataset, and the current step or obstacle."""
    status = get_status(run)
    elapsed = (
        0.0 if status.start_time is None else ((status.completion_time or now) - status.start_time).total_seconds()
    )
    parts = [f"[{elapsed:7.1f} s] {status.phase or 'Pending'}", *(_counts(dataset) for dataset in status.datasets)]
    return " | ".join([*parts, *([why] if (why := reason_line(run)) else [])])


def reason_line(run: EvalRun) -> str:
    """Describe the run's current step, its obstacle, or its end."""
    status = get_status(run)
    if not status.conditions:
        return "No operator has taken it up yet: is evalrun installed in the cluster, and does it serve this namespace?"
    kinds = TELLING.get(status.phase or "Pending", (ConditionType.COMPLETE,))
    found = [condition for kind in kinds if (condition := find_condition(status, kind)) is not None]
    telling = next((condition for condition in found if condition.status != "True" and condition.message), None)
    telling = telling or next((condition for condition in found if condition.message), None)
    return "" if telling is None else telling.message


def status_tables(run: EvalRun, now: datetime) -> Iterator[Table | Text]:
    """Yield a heading, the conditions, the datasets, and other facts, such as the URL of the outputs."""
    status, metadata = get_status(run), run.metadata
    heading = f"EvalRun {metadata.namespace}/{metadata.name}: {status.phase or 'Pending'}"
    yield Text(heading, style="bold")
    why = reason_line(run)
    if why:
        yield Text(why)
    if status.conditions:
        yield _conditions(status.conditions, now)
    if status.datasets:
        yield _datasets(status.datasets)
    for name, value in _facts(status):
        yield Text(f"{name}: {value}", overflow="fold")


def _conditions(conditions: list[Condition], now: datetime) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("condition", "status", "reason"):
        table.add_column(heading, no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    for condition in conditions:
        since = _duration((now - condition.last_transition_time).total_seconds())
        status = Text(condition.status, STYLES[condition.status])
        table.add_row(condition.type, status, condition.reason, since)
    return table


def _datasets(datasets: list[DatasetStatus]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("dataset")
    for heading in ("answers", "generated", "judged", "not judged", HEADLINE.title, "95 % interval"):
        table.add_column(heading, justify="right")
    for dataset in datasets:
        interval = "-" if dataset.interval is None else f"{dataset.interval.low} to {dataset.interval.high}"
        counts = (dataset.total, dataset.generated, dataset.judged, dataset.not_judged)
        table.add_row(dataset.name, *map(str, counts), dataset.accepted_at_1 or "-", interval)
    return table


def _facts(status: EvalRunStatus) -> Iterator[tuple[str, str]]:
    if status.attempts > 1:
        yield "attempts", str(status.attempts)
    for name, value in (
        ("tokens/s", status.tokens_per_second),
        ("problems/s", status.problems_per_second),
        ("GPU-seconds per solved", status.gpu_seconds_per_solved),
        ("RayCluster", status.ray_cluster_name),
        ("stopped early by its gates", status.stopped_early),
        ("outputs", status.output_url),
        ("W&B", status.wandb_url),
    ):
        if value:
            yield name, value


def _counts(dataset: DatasetStatus) -> str:
    line = f"{dataset.name}: {dataset.generated}/{dataset.total} generated, {dataset.judged} judged"
    line += f", {dataset.not_judged} NOT JUDGED" if dataset.not_judged else ""
    return line + (f", {HEADLINE.title} {dataset.accepted_at_1}" if dataset.accepted_at_1 else "")


def _holds(run: EvalRun, kind: ConditionType) -> bool:
    condition = find_condition(get_status(run), kind)
    return condition is not None and condition.status == "True"


def _duration(seconds: float) -> str:
    """Return a time as kubectl does: its two largest units."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [f"{amount}{unit}" for amount, unit in ((days, "d"), (hour, "h"), (minute, "m"), (second, "s")) if amount]
    return "".join(parts[:2]) or "0s"
