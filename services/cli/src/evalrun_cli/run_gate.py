"""The gate of a run on one machine: its baseline checked at the start, its decision in the exit code at the end."""

from collections.abc import Mapping
from pathlib import Path

from evalrun_operator.api.v1alpha1 import Gate
from evalrun_runtime.exits import BadInputError, ExitCode


def check_baseline(gate: Gate, file: Path) -> None:
    """Refuse, before anything is generated, a baseline that the gate could not be decided by.

    Raises:
        BadInputError: no finished run lies there, or it lacks the gate's dataset.
    """
    # pyarrow and fsspec: most runs have no gate and start without them
    from evalrun_aggregator.gating import baseline_place
    from evalrun_aggregator.stored_run import StoredRun

    where = f"{file}: spec.gate.baseline"
    try:
        baseline = StoredRun.open(baseline_place(gate.baseline, file.resolve().parent))
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    if gate.dataset not in baseline.dataset_names:
        has = ", ".join(baseline.dataset_names) or "no results"
        raise BadInputError(f"{where}: {gate.baseline} has no results of {gate.dataset}: it has {has}")


def gate_line(summary: Mapping[str, object]) -> str | None:
    """Give what the gate decided, for people; None where the run has none."""
    gate = summary.get("gate")
    return f"Gate {gate.get('decision')}: {gate.get('message')}" if isinstance(gate, Mapping) else None


def gated_code(code: ExitCode, summary: Mapping[str, object]) -> ExitCode:
    """Give the exit code of a run that ended with results: a failed gate outweighs a degraded run, an open one not."""
    gate = summary.get("gate")
    decision = gate.get("decision") if isinstance(gate, Mapping) else None
    if decision == "FAIL":
        return ExitCode.GATE_FAILED
    if decision == "INCONCLUSIVE" and code == ExitCode.SUCCEEDED:
        return ExitCode.GATE_INCONCLUSIVE
    return code
