"""Differences of metrics over paired problems, with a paired bootstrap interval. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from evalrun_registry.metrics import is_share
from evalrun_results.comparisons.pairing import PairedDataset
from evalrun_results.comparisons.power import PowerNote, power_note
from evalrun_results.metrics.accumulator import SEED, problem_values
from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import (
    CONFIDENCE,
    MIN_ON_A_SIDE,
    MIN_PROBLEMS,
    Bounds,
    Floats,
    bootstrap_ratios,
    plus_two,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric in two runs, over the problems that have a value in both."""

    metric: str
    problems: int
    left_out: int
    """Judged in both runs, but without a value of this metric in one of them, e.g. fewer than k judged samples."""
    baseline: float
    candidate: float
    difference: float
    """Candidate minus baseline: the mean over problems."""
    low: float | None
    high: float | None
    """None, both: too few problems for an interval that holds. Shares always have one."""
    power: PowerNote


def paired_differences(
    paired: PairedDataset, metrics: Collection[str], *, confidence: float = CONFIDENCE, seed: int = SEED
) -> dict[str, Difference]:
    """Return the difference of each metric that some problem has a value of in both runs, in the order asked for.

    The interval is the percentile bootstrap over problems: 10,000 draws of as many pairs as there are. All metrics
    share the draws, and neither their number nor the order of the results changes an interval. With fewer than 30
    problems, or fewer than 10 that differ, it would be too narrow: shares then have `plus_two`, amounts no interval.

    Args:
        paired: the problems.
        metrics: names of metrics that are means over problems; `pass_at_<k>` for any k.
        confidence: of the two-sided interval.
        seed: of the draws.
    """
    values = {name: pair for name in metrics if (pair := paired_values(paired, name)) is not None}
    return differences_of(values, confidence=confidence, seed=seed)


def differences_of(
    values: Mapping[str, tuple[Floats, Floats, Mask]], *, confidence: float = CONFIDENCE, seed: int = SEED
) -> dict[str, Difference]:
    """Return the differences of metrics from each problem's value in both, and which problems have one in both."""
    if not values:
        return {}
    bounds = _bounds(values, confidence, seed)
    differences = {}
    for name, (ours, theirs, members) in values.items():
        first, second = ours[members], theirs[members]
        change = second - first
        low, high = bounds[name]
        differences[name] = Difference(
            metric=name,
            problems=len(change),
            left_out=len(members) - len(change),
            baseline=float(first.mean()),
            candidate=float(second.mean()),
            difference=float(change.mean()),
            low=low,
            high=high,
            power=power_note(change, confidence),
        )
    return differences


def _bounds(values: Mapping[str, tuple[Floats, Floats, Mask]], confidence: float, seed: int) -> dict[str, Bounds]:
    """Return the interval of each metric's difference."""
    above = np.stack([np.where(members, theirs - ours, 0.0) for ours, theirs, members in values.values()], axis=1)
    below = np.stack([members.astype(np.float64) for _, _, members in values.values()], axis=1)
    drawn = bootstrap_ratios(above, below, np.random.default_rng([seed, crc32(b"pairs")]), confidence=confidence)
    bounds: dict[str, Bounds] = dict(zip(values, drawn, strict=True))
    for name, (ours, theirs, members) in values.items():
        change = (theirs - ours)[members]
        if len(change) < MIN_PROBLEMS or np.count_nonzero(change) < MIN_ON_A_SIDE or np.ptp(change) == 0:
            bounds[name] = plus_two(change, confidence) if is_share(name) else (None, None)
    return bounds


def paired_values(paired: PairedDataset, metric: str) -> tuple[Floats, Floats, Mask] | None:
    """Return each problem's value in both runs, and which have one in both; None where none has."""
    first, second = (problem_values(each, [metric]).get(metric) for each in (paired.baseline, paired.candidate))
    if first is None or second is None:
        return None
    members = first[1] & second[1]
    return (first[0], second[0], members) if members.any() else None
