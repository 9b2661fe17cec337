"""The values that a gate compares: each problem's value in both runs, or against an anchor. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.differences import paired_values
from evalrun_results.comparisons.pairing import PairedDataset, columns_of, pair
from evalrun_results.metrics.accumulator import problem_values, unjudged_bounds
from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import FORGED_WHERE, DatasetTotals
from evalrun_results.sequential.confidence_sequence import DIFFERENCE, Bounds
from evalrun_results.sequential.mean_decision import Values
from evalrun_results.sequential.order import drawing_order


class UnusableGateError(Exception):
    """The runs cannot answer what the gate asks; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class GateDataset:
    """One dataset of a gate: the values of its problems that have one on both sides."""

    baseline: Floats
    candidate: Floats
    left_out: int
    """In either run, but not compared."""
    paired: PairedDataset | None
    """None with an anchor."""


def compared_values(
    gate: Gate, baseline: Mapping[str, DatasetTotals] | None, candidate: Mapping[str, DatasetTotals]
) -> list[GateDataset]:
    """Return what a gate compares, by dataset in its order.

    Args:
        gate: what is asked.
        baseline: the totals of the earlier run, by dataset; None with an anchor.
        candidate: of the run that is to pass.

    Raises:
        UnusableGateError: a run lacks a dataset, or results that can be forged would feed the gate.
    """
    return [_compared(gate, name, baseline, usable(candidate, name, "candidate")) for name in gate.dataset_names]


def usable(run: Mapping[str, DatasetTotals], dataset: str, role: str) -> DatasetTotals:
    """Return a dataset's totals. Raises UnusableGateError where a gate can have none of them."""
    totals = run.get(dataset)
    if totals is None:
        known = f"it has {', '.join(sorted(run))}" if run else "it has no results at all"
        raise UnusableGateError(f"the {role} has no results of dataset {dataset}: {known}")
    forgeable = totals.flags["forgeable"]
    if forgeable:
        raise UnusableGateError(
            f"{forgeable} results of {dataset} in the {role} can be forged ({FORGED_WHERE}) and feed no gate"
        )
    return totals


def sequential_values(
    gate: Gate, baseline: DatasetTotals | None, candidate: DatasetTotals, problem_ids: Sequence[str], seed: int
) -> tuple[Values, int]:
    """Return the gains that a sequential gate looks at, and how many problems have no baseline.

    They are of the problems up to the first one in drawing order that has no result: what came later may be there
    because it was quick. A gain is in the metric's good sense; what was not judged lies between its bounds.

    Args:
        gate: about one dataset.
        baseline: totals of the earlier run; None with an anchor.
        candidate: totals of the run, every problem in it complete.
        problem_ids: of the run's dataset, drawn or not.
        seed: of the run.
    """
    base = base_values(gate, baseline, problem_ids)
    order = drawing_order(seed, gate.dataset_names[0], base)
    drawn = []
    for name in order:
        problem = candidate.problems.get(name)
        if problem is None or not problem.outcomes.seen:
            break
        drawn.append(name)
    lows, highs = value_bounds(gate.metric, drawn, candidate)
    given = np.array([base[name] for name in order], dtype=np.float64)
    here, anchor = given[: len(drawn)], gate.anchor_value
    if gate.falls:
        bounds = DIFFERENCE if anchor is None else Bounds(anchor - 1.0, anchor)
        return Values(here - highs, here - lows, given - 1.0, given, bounds), len(problem_ids) - len(order)
    bounds = DIFFERENCE if anchor is None else Bounds(-anchor, 1.0 - anchor)
    return Values(lows - here, highs - here, -given, 1.0 - given, bounds), len(problem_ids) - len(order)


def value_bounds(metric: str, names: Sequence[str], totals: DatasetTotals) -> tuple[Floats, Floats]:
    """Return between which numbers each problem's value lies: apart where a sample was not judged.

    Args:
        metric: a gate's.
        names: of problems with samples, in the order wanted.
        totals: that hold them.
    """
    if not names:
        return np.zeros(0), np.zeros(0)
    by_id = sorted(names)
    columns = columns_of(totals, by_id)
    low, high = unjudged_bounds(metric, columns)
    places = {name: place for place, name in enumerate(by_id)}
    wanted = np.array([places[name] for name in names])
    return low[wanted], high[wanted]


def base_values(gate: Gate, baseline: DatasetTotals | None, problem_ids: Sequence[str]) -> dict[str, float]:
    """Return the value of each problem in the baseline, where it has one; the anchor for all without a baseline."""
    if baseline is None:
        return dict.fromkeys(problem_ids, gate.anchor_value or 0.0)
    wanted = set(problem_ids)
    names = sorted(name for name, each in baseline.problems.items() if name in wanted and each.outcomes.judged)
    values, members = _values_of(gate.metric, columns_of(baseline, names))
    return {name: float(value) for name, value, here in zip(names, values, members, strict=True) if here}


def _values_of(metric: str, columns: ProblemColumns) -> tuple[Floats, Mask]:
    found = problem_values(columns, [metric]).get(metric)
    count = len(columns.seen)
    return (np.zeros(count), np.zeros(count, dtype=np.bool_)) if found is None else found


def _compared(
    gate: Gate, name: str, baseline: Mapping[str, DatasetTotals] | None, candidate: DatasetTotals
) -> GateDataset:
    if baseline is None:
        names = sorted(key for key, each in candidate.problems.items() if each.outcomes.judged)
        seen = sum(1 for each in candidate.problems.values() if each.outcomes.seen)
        values, members = _values_of(gate.metric, columns_of(candidate, names))
        theirs = values[members]
        return GateDataset(np.full(len(theirs), gate.anchor_value or 0.0), theirs, seen - len(theirs), None)
    paired = pair(usable(baseline, name, "baseline"), candidate)
    unpaired = paired.only_in_baseline + paired.only_in_candidate + paired.not_judged
    values_of_both = paired_values(paired, gate.metric)
    if values_of_both is None:
        return GateDataset(np.zeros(0), np.zeros(0), unpaired + len(paired.problem_ids), paired)
    ours, theirs, members = values_of_both
    return GateDataset(ours[members], theirs[members], unpaired + int((~members).sum()), paired)
