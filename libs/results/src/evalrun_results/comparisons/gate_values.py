"""The values that a gate compares: each problem's value in both runs, or against an anchor. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.differences import pair_readings
from evalrun_results.comparisons.pairing import PairedDataset, make_problem_columns, pair
from evalrun_results.comparisons.readings import PairedReadings, Readings, read_metric
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.problem_totals import FORGED_WHERE, DatasetTotals, Outcomes, ProblemTotals
from evalrun_results.sequential.confidence_sequence import DIFFERENCE, Bounds
from evalrun_results.sequential.mean_decision import Values
from evalrun_results.sequential.order import order_problems


class UnusableGateError(Exception):
    """The runs cannot decide the gate. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class GateDataset:
    """A dataset of a gate."""

    readings: PairedReadings | None
    """Of every problem that both runs have, judged or not; None where no problem may have a value."""
    left_out: int
    """Problems in either run without a value in both, including those with missing completions."""
    paired: PairedDataset | None
    """None with an anchor."""


@dataclass(frozen=True, slots=True)
class SequentialGains:
    """The gains that a sequential gate looks at."""

    values: Values
    without: int
    """Problems of the run that the baseline does not have."""
    unknown_baseline: int
    unknown_candidate: int
    """Number of the drawn problems' completions that were not judged."""

    def select_judged(self) -> Values:
        """Return the gains of the drawn problems whose answers were all judged, and of every problem not yet drawn."""
        drawn = len(self.values.lows)
        known = self.values.lows == self.values.highs
        kept = np.append(known, np.ones(len(self.values.floors) - drawn, dtype=np.bool_))
        each = self.values
        return Values(each.lows[known], each.highs[known], each.floors[kept], each.ceilings[kept], each.bounds)


def make_gate_datasets(
    gate: Gate, baseline: Mapping[str, DatasetTotals] | None, candidate: Mapping[str, DatasetTotals]
) -> list[GateDataset]:
    """Return the values that a gate compares, by dataset in its order.

    Args:
        gate: which datasets and metric are compared, and with what margin.
        baseline: the totals of the earlier run, by dataset; None with an anchor.
        candidate: of the run that is to pass.

    Raises:
        UnusableGateError: a run lacks a dataset, or results that can be forged would feed the gate.
    """
    return [
        _make_gate_dataset(gate, name, baseline, usable(candidate, name, "candidate", gate))
        for name in gate.dataset_names
    ]


def usable(run: Mapping[str, DatasetTotals], dataset: str, role: str, gate: Gate) -> DatasetTotals:
    """Return a dataset's totals.

    Raises:
        UnusableGateError: the run lacks the dataset, or has results that can be forged, which the gate does not allow.
    """
    totals = run.get(dataset)
    if totals is None:
        known = f"it has {', '.join(sorted(run))}" if run else "it has no results at all"
        raise UnusableGateError(f"the {role} has no results of dataset {dataset}: {known}")
    forgeable = totals.flags["forgeable"]
    if forgeable and not gate.allow_forgeable:
        raise UnusableGateError(
            f"{forgeable} results of {dataset} in the {role} can be forged ({FORGED_WHERE}) and feed no gate: "
            "write allowForgeable: true to use them nevertheless"
        )
    return totals


def sequential_values(
    gate: Gate, baseline: DatasetTotals | None, candidate: DatasetTotals, problem_ids: Sequence[str], seed: int
) -> SequentialGains:
    """Return the gains that a sequential gate looks at.

    They cover the problems, in drawing order, before the first problem without a result: later results may have arrived
    early because they were quick. A positive gain is an improvement. If a completion was not judged, in either run, the
    gain lies between its bounds.

    Args:
        gate: about a dataset.
        baseline: totals of the earlier run; None with an anchor.
        candidate: totals of the run, every problem in it complete.
        problem_ids: of the run's dataset, drawn or not.
        seed: of the run.
    """
    base = base_bounds(gate, baseline, problem_ids)
    order = order_problems(seed, gate.dataset_names[0], base)
    drawn = []
    for name in order:
        problem = candidate.problems.get(name)
        if problem is None or not problem.outcomes.seen:
            break
        drawn.append(name)
    found = value_bounds(gate.metric, drawn, candidate)
    low, high, unknown = (np.array([found[name][part] for name in drawn], dtype=np.float64) for part in range(3))
    least, most, missing = (np.array([base[name][part] for name in order], dtype=np.float64) for part in range(3))
    here = slice(len(drawn))
    if gate.falls:
        lows, highs, floors, ceilings = least[here] - high, most[here] - low, least - 1.0, most
    else:
        lows, highs, floors, ceilings = low - most[here], high - least[here], -most, 1.0 - least
    anchor = gate.anchor_value
    bounds = DIFFERENCE if anchor is None else Bounds(-anchor, 1.0 - anchor)
    values = Values(lows, highs, floors, ceilings, bounds.negate() if gate.falls else bounds)
    return SequentialGains(values, len(problem_ids) - len(order), int(missing[here].sum()), int(unknown.sum()))


def value_bounds(metric: str, names: Sequence[str], totals: DatasetTotals) -> dict[str, tuple[float, float, int]]:
    """Return between which numbers each problem's value lies, and how many of its answers are missing.

    Args:
        metric: a gate's.
        names: of problems with samples.
        totals: that hold them.
    """
    found = read_metric(metric, make_problem_columns(totals, names))
    if found is None:
        return dict.fromkeys(names, (0.0, 1.0, 0))
    low, high = np.nan_to_num(found.lows, nan=0.0), np.nan_to_num(found.highs, nan=1.0)
    columns = zip(low.tolist(), high.tolist(), found.unknown.tolist(), strict=True)
    return dict(zip(sorted(names), columns, strict=True))


def base_bounds(
    gate: Gate, baseline: DatasetTotals | None, problem_ids: Sequence[str]
) -> dict[str, tuple[float, float, int]]:
    """Return the bounds of each problem's value in the baseline, as `value_bounds`; without a baseline, the anchor.

    Excludes problems that the baseline lacks, or for which it cannot have a value.
    """
    if baseline is None:
        anchor = gate.anchor_value or 0.0
        return dict.fromkeys(problem_ids, (anchor, anchor, 0))
    wanted = set(problem_ids)
    names = sorted(name for name, each in baseline.problems.items() if name in wanted and each.outcomes.seen)
    found = read_metric(gate.metric, make_problem_columns(baseline, names))
    if found is None:
        return {}
    bounds = value_bounds(gate.metric, names, baseline)
    return {name: bounds[name] for name, possible in zip(names, found.possible.tolist(), strict=True) if possible}


def _make_gate_dataset(
    gate: Gate, name: str, baseline: Mapping[str, DatasetTotals] | None, candidate: DatasetTotals
) -> GateDataset:
    if baseline is None:
        names = [key for key, each in candidate.problems.items() if each.outcomes.seen]
        found = read_metric(gate.metric, make_problem_columns(candidate, names))
        if found is None:
            return GateDataset(None, len(names), None)
        readings = PairedReadings(_make_anchor_readings(gate.anchor_value or 0.0, len(names)), found)
        return GateDataset(readings, len(names) - int(found.members.sum()), None)
    known = usable(baseline, name, "baseline", gate)
    paired = pair(known, add_unanswered(candidate, known))
    unpaired = paired.only_in_baseline + paired.only_in_candidate
    both = pair_readings(paired, gate.metric)
    valued = 0 if both is None else int(both.members.sum())
    return GateDataset(both, unpaired + len(paired.all_baseline.seen) - valued, paired)


def add_unanswered(run: DatasetTotals, other: DatasetTotals) -> DatasetTotals:
    """Return a run's totals, extended by a problem without verdicts for each problem that only the other run has.

    A run that leaves out problems might have failed all of them.
    """
    added = {
        name: ProblemTotals(outcomes=Outcomes(seen=each.outcomes.seen))
        for name, each in other.problems.items()
        if each.outcomes.seen and name not in run.problems
    }
    return replace(run, problems={**run.problems, **added}) if added else run


def _make_anchor_readings(anchor: float, count: int) -> Readings:
    values: Floats = np.full(count, anchor)
    every = np.ones(count, dtype=np.bool_)
    return Readings(values, every, values, values, every, np.zeros(count, dtype=np.int64), every)
