"""The gates of a local run: checks the baseline at the start and turns the decision into the exit code."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from evalrun_api.v1alpha1 import EvalRunSpec, Gate
from evalrun_runtime.exits import BadInputError, ExitCode


def outlooks(spec: EvalRunSpec) -> Iterator[str]:
    """Yield lines about the problems that the gates of a run need to decide, if the file contains their number."""
    from evalrun_results.comparisons.power import ASSUMED_FLIPS, gate_outlook
    from evalrun_results.sequential.expected_size import problems_needed

    sizes = {dataset.name: dataset.max_problems for dataset in spec.datasets}
    family = len(spec.gates)
    for gate in spec.gates:
        counts = [sizes.get(name) for name in gate.dataset_names]
        known = [count for count in counts if count is not None]
        problems = sum(known) if len(known) == len(counts) else None
        if (outlook := gate_outlook(gate, problems, family=family)) is not None:
            yield f"warning: spec.{outlook}"
        elif gate.sequential and problems is not None:
            confidence = 1 - (1 - gate.confidence_value) / family
            after = problems_needed(problems, ASSUMED_FLIPS, gate.min_gain, gate.population, confidence)
            if after is not None:
                yield (
                    f"gate {gate.label} {gate.metric}: an equal run is decided after {after:,} of {problems:,} "
                    f"problems or fewer 4 times in 5 (if {ASSUMED_FLIPS:.0%} of the answers flip between equal runs)"
                )


def check_baseline(gate: Gate, file: Path) -> None:
    """Refuse a baseline that cannot decide its gate, before anything is generated.

    Raises:
        BadInputError: there is no finished run, its own gate stopped it early, or it lacks the gate's dataset.
    """
    # The imports load pyarrow and fsspec. Most runs have no gate, and start without them.
    from evalrun_results.comparisons.run_gate import baseline_place
    from evalrun_results.stored_run import StoredRun

    where = f"{file}: spec.gates"
    if gate.baseline is None:
        return
    try:
        baseline = StoredRun.open(baseline_place(gate.baseline, file.resolve().parent))
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    if baseline.stopped_early:
        raise BadInputError(
            f"{where}: {gate.baseline} was stopped early by its own gate: name a run that has all of its problems"
        )
    for name in gate.dataset_names:
        if name not in baseline.dataset_names:
            has = ", ".join(baseline.dataset_names) or "no results"
            raise BadInputError(f"{where}: {gate.baseline} has no results of {name}: it has {has}")


def gate_line(summary: Mapping[str, object]) -> str | None:
    """Describe the gates' decision; None for a run without gates."""
    gate, stopped = summary.get("gate"), summary.get("stoppedEarly")
    early = " (stopped early)" if stopped is not None else ""
    return f"Gate {gate.get('decision')}: {gate.get('message')}{early}" if isinstance(gate, Mapping) else None


def apply_gate(code: ExitCode, summary: Mapping[str, object]) -> ExitCode:
    """Return the exit code of a run with results. A failed gate outweighs a degraded run; an open gate does not."""
    gate = summary.get("gate")
    decision = gate.get("decision") if isinstance(gate, Mapping) else None
    if decision == "FAIL":
        return ExitCode.GATE_FAILED
    if decision == "INCONCLUSIVE" and code == ExitCode.SUCCEEDED:
        return ExitCode.GATE_INCONCLUSIVE
    return code
