"""The edge of the gate: fetches the baseline's results and has the gate decided."""

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from evalrun_aggregator.comparing.gate import GateDecision, UnusableGateError, decide_gate, undecided
from evalrun_aggregator.problem_totals import DatasetTotals
from evalrun_aggregator.results import JsonObject
from evalrun_aggregator.stored_run import StoredRun
from evalrun_operator.api.v1alpha1 import Gate
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

BASELINE_NOT_FOUND: Final = "BaselineNotFound"
"""The reason of the condition GatePassed where the baseline's results cannot be read."""

_RUN_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def gate_of(gate: Gate, base_dir: Path) -> Callable[[Mapping[str, DatasetTotals]], JsonObject]:
    """Give what decides a run's gate at its end. It never raises for the baseline's sake: the run has its results."""

    def decide(candidate: Mapping[str, DatasetTotals]) -> JsonObject:
        decision = decided_or_why_not(gate, base_dir, candidate)
        logger.info("gate: %s (%s): %s", decision.decision, decision.reason, decision.message)
        return decision.as_json()

    return decide


def decided_or_why_not(gate: Gate, base_dir: Path, candidate: Mapping[str, DatasetTotals]) -> GateDecision:
    """Decide a gate; INCONCLUSIVE, with the reason, where the baseline cannot be read or cannot be used."""
    try:
        baseline = StoredRun.open(baseline_place(gate.baseline, base_dir)).totals()
    except (BadInputError, OSError) as error:
        return undecided(gate, f"the baseline cannot be read: {error}", BASELINE_NOT_FOUND)
    try:
        return decide_gate(gate, baseline, candidate)
    except UnusableGateError as error:
        return undecided(gate, str(error))


def baseline_place(baseline: str, base_dir: Path) -> str:
    """Give the folder or URL that a gate's baseline names.

    Args:
        baseline: a URL, or a path; a relative one is below `base_dir`, the folder of the file that names it.
        base_dir: see there.

    Raises:
        BadInputError: it is the name of an EvalRun: only the operator of a cluster knows where its outputs are.
    """
    if "://" in baseline:
        return baseline
    folder = base_dir / baseline
    if not folder.exists() and _RUN_NAME.fullmatch(baseline):
        raise BadInputError(
            f"baseline {baseline}: no such folder ({folder}), and an EvalRun's name means something to a cluster's "
            "operator only: write the folder or URL of its outputs"
        )
    return str(folder)
