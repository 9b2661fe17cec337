"""Fetches the baselines' results and decides a run's gates; the I/O around the pure decisions."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.conditions import list_version_differences, older_rules
from evalrun_results.comparisons.gate import GateResult, decide_gate, make_undecided_result
from evalrun_results.comparisons.gate_values import UnusableGateError
from evalrun_results.comparisons.sequential_gate import decide_sequentially
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

BASELINE_NOT_FOUND: Final = "BaselineNotFound"
"""The reason of the condition GatePassed where the baseline's results cannot be read."""

_RUN_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

Totals = Mapping[str, DatasetTotals]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The order in which a run evaluated its problems, which a sequential gate needs."""

    seed: int = 0
    problem_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Every problem of each dataset, drawn or not; for a dataset that is missing here, those with results."""


NOTHING_SAID: Final = Drawn()


def make_gate_decider(
    gates: Sequence[Gate],
    base_dir: Path,
    drawn: Drawn,
    decided: Mapping[int, GateResult],
    *,
    partial: str = "",
    run_info: Mapping[str, object] = MappingProxyType({}),
) -> Callable[[Totals], Sequence[GateResult]]:
    """Return the function that decides a run's gates at its end. It never raises because of a baseline, since the run
    has results.

    Args:
        gates: of the run.
        base_dir: the directory that relative baselines start from.
        drawn: how the run drew its problems.
        decided: the decisions made while the run went on, by the gate's index; such a decision stands.
        partial: why the run ended early; empty if it did not. An open gate then stays open: the problems that got worse
            may be among those that the run did not reach.
        run_info: the run's run_info.json, which describes its datasets.
    """
    early = f"the run ended early, so nothing was compared: {partial}"

    def decide(candidate: Totals) -> Sequence[GateResult]:
        found = [
            decided.get(place)
            or (make_undecided_result(gate, early, family=len(gates)) if partial else None)
            or read_baseline_and_decide(gate, base_dir, candidate, drawn=drawn, family=len(gates), run_info=run_info)
            for place, gate in enumerate(gates)
        ]
        for each in found:
            logger.info("gate: %s (%s): %s", each.decision, each.reason, each.message)
        return found

    return decide


def read_baseline_and_decide(
    gate: Gate,
    base_dir: Path,
    candidate: Totals,
    *,
    drawn: Drawn = NOTHING_SAID,
    family: int = 1,
    run_info: Mapping[str, object] = MappingProxyType({}),
) -> GateResult:
    """Decide a gate; INCONCLUSIVE, with the reason, if the baseline cannot be read or used."""
    try:
        baseline = baseline_totals(gate, base_dir)
        warnings = version_warnings(gate, base_dir, run_info) if run_info else ()
    except (BadInputError, OSError) as error:
        return make_undecided_result(gate, f"the baseline cannot be read: {error}", BASELINE_NOT_FOUND, family=family)
    except UnusableGateError as error:
        return make_undecided_result(gate, str(error), family=family)
    return replace(decide_or_explain(gate, baseline, candidate, drawn=drawn, family=family), warnings=warnings)


def decide_or_explain(
    gate: Gate, baseline: Totals | None, candidate: Totals, *, drawn: Drawn = NOTHING_SAID, family: int = 1
) -> GateResult:
    """Decide a gate whose baseline was read; INCONCLUSIVE, with the reason, if a run cannot be used."""
    try:
        return decide_or_raise(gate, baseline, candidate, drawn=drawn, family=family)
    except UnusableGateError as error:
        return make_undecided_result(gate, str(error), family=family)


def decide_or_raise(
    gate: Gate, baseline: Totals | None, candidate: Totals, *, drawn: Drawn = NOTHING_SAID, family: int = 1
) -> GateResult:
    """Decide a gate whose baseline was read. Raises UnusableGateError if a run cannot be used."""
    if not gate.sequential:
        return decide_gate(gate, baseline, candidate, family=family)
    name = gate.dataset_names[0]
    with_results = list(candidate[name].problems) if name in candidate else []
    problem_ids = drawn.problem_ids.get(name, with_results)
    return decide_sequentially(gate, baseline, candidate, problem_ids, seed=drawn.seed, family=family)


def baseline_totals(gate: Gate, base_dir: Path) -> Totals | None:
    """Read the baseline of a gate; None for an anchor.

    Raises:
        BadInputError: no finished run there, or it cannot be read.
        UnusableGateError: the run ended early: which problems it has depends on how they went.
    """
    if gate.baseline is None:
        return None
    stored = StoredRun.open(baseline_place(gate.baseline, base_dir))
    if stored.stopped_early:
        raise UnusableGateError(
            f"the baseline {gate.baseline} was stopped early by its own gate, so its problems are a biased sample: "
            "use a complete run as baseline (stopEarly: false)"
        )
    check_answers_known(stored)
    return stored.totals()


def check_answers_known(run: StoredRun) -> None:
    """Raise UnusableGateError if it is unknown which completions of a run were left out."""
    if run.run_info.get("answers_per_problem") == "AsGiven":
        raise UnusableGateError(
            f"the run {run.place} was judged with --samples as-given, so answers that were left out are unknown: judge "
            "it without that flag"
        )


def version_warnings(gate: Gate, base_dir: Path, run_info: Mapping[str, object]) -> tuple[str, ...]:
    """Name differences between a run and its baseline: problems, tests, or rules of judging."""
    if gate.baseline is None:
        return ()
    baseline = StoredRun.open(baseline_place(gate.baseline, base_dir)).run_info
    versions = (line for name in gate.dataset_names for line in list_version_differences(baseline, run_info, name))
    return (*versions, *older_rules(baseline, run_info, ("the baseline", "the run")))


def drawn_by(run: StoredRun, gate: Gate, baseline: Totals | None, candidate: Totals) -> Drawn:
    """Return the drawing order of a run that has ended.

    Raises:
        UnusableGateError: the run was stopped early, and its gate is not sequential or the baseline does not have just
            its problems; or a sequential gate's run lacks problems of the baseline; or as `check_answers_known`.
    """
    spec = run.run_info.get("spec")
    protocol = spec.get("protocol") if isinstance(spec, dict) else None
    seed = protocol.get("seed", 0) if isinstance(protocol, dict) else 0
    seed = seed if isinstance(seed, int) else 0
    check_answers_known(run)
    if not run.stopped_early:
        _check_no_problem_left_out(run, gate, baseline, candidate)
        return Drawn(seed)
    if not gate.sequential:
        raise UnusableGateError(
            f"the run {run.place} was stopped early by its own gate, so an interval for a run of fixed size is "
            "not valid for it. Read gate in summary.json, or write sequential: true"
        )
    name = gate.dataset_names[0]
    datasets = run.run_info.get("datasets")
    entry = datasets.get(name) if isinstance(datasets, dict) else None
    count = entry.get("problems") if isinstance(entry, dict) else None
    known = {} if baseline is None else baseline.get(name, DatasetTotals()).problems
    if len(known) != count or not set(candidate[name].problems) <= set(known):
        raise UnusableGateError(
            f"the run {run.place} was stopped early, and the baseline does not have all of its {count} problems of "
            f"{name}, so the order of its problems is unknown. Read gate in summary.json"
        )
    return Drawn(seed, {name: list(known)})


def _check_no_problem_left_out(run: StoredRun, gate: Gate, baseline: Totals | None, candidate: Totals) -> None:
    """Raise UnusableGateError if a sequential gate's run lacks problems: the remaining problems are no random sample.

    Other gates count such problems in the least favourable way.
    """
    if not gate.sequential or baseline is None:
        return
    name = gate.dataset_names[0]
    known, here = (totals.get(name, DatasetTotals()).problems for totals in (baseline, candidate))
    if without := len(set(known) - set(here)):
        raise UnusableGateError(
            f"the run {run.place} lacks {without} of the baseline's {len(known)} problems of {name}: evaluate all of "
            "them, or compare with a baseline that excludes the same"
        )


def baseline_place(baseline: str, base_dir: Path) -> str:
    """Return the directory or URL that a gate's baseline names.

    Args:
        baseline: a URL, or a path; a relative one is below `base_dir`, the directory of the file that names it.
        base_dir: see there.

    Raises:
        BadInputError: it is the name of an EvalRun: only the operator of a cluster knows where its outputs are.
    """
    if "://" in baseline:
        return baseline
    directory = base_dir / baseline
    if not directory.exists() and _RUN_NAME.fullmatch(baseline):
        raise BadInputError(
            f"baseline {baseline}: no such directory ({directory}), and names of EvalRuns are resolved only in a "
            f"cluster: "
            "write the directory or URL of its outputs"
        )
    return str(directory)
