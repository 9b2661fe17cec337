"""Differences of metrics over paired problems, with intervals that hold for any number of problems. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from evalrun_registry.metrics import is_share
from evalrun_results.comparisons.mean_bounds import mean_interval
from evalrun_results.comparisons.pairing import PairedDataset
from evalrun_results.comparisons.power import PowerNote, power_note
from evalrun_results.comparisons.readings import PairedReadings, read_metric
from evalrun_results.metrics.accumulator import SEED
from evalrun_results.metrics.intervals import CONFIDENCE, MIN_ON_A_SIDE, MIN_PROBLEMS, Bounds, bootstrap_ratios


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric in two runs, over the problems that have a value in both."""

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
    """While answers are missing, the interval under the least favourable reading for either side. None, both: too few
    problems for an interval that holds. Shares always have one."""
    power: PowerNote
    missing: "Missing | None" = None
    """None if every completion was judged."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Completions that were not judged, and the interval without their problems."""

    baseline: int
    candidate: int
    low: float | None
    high: float | None
    """By the judged answers alone. None, both: no problem has a value in both runs."""


def compute_differences(
    paired: PairedDataset, metrics: Collection[str], *, confidence: float = CONFIDENCE, seed: int = SEED
) -> dict[str, Difference]:
    """Return the difference of each metric that some problem has a value of in both runs, in the order asked for.

    Shares have Gaffke's interval (`mean_bounds`), which holds for any number of problems and samples, however one-sided
    the changes are. Amounts have the percentile bootstrap over problems: 10,000 resamples, each of as many pairs as
    there are. They have no interval with fewer than 30 problems, or fewer than 10 that differ, or if all changes are
    equal. Neither the number of metrics nor the order of the results changes an interval.

    Args:
        paired: the problems.
        metrics: names of metrics that are means over problems; `pass_at_<k>` for any k.
        confidence: of the two-sided interval.
        seed: of the draws.
    """
    found = {name: readings for name in metrics if (readings := pair_readings(paired, name)) is not None}
    return compute_reading_differences(found, confidence=confidence, seed=seed)


def pair_readings(paired: PairedDataset, metric: str) -> PairedReadings | None:
    """Return a metric's readings over every problem that both runs have; None where no problem may have a value."""
    first, second = (read_metric(metric, each) for each in (paired.all_baseline, paired.all_candidate))
    if first is None or second is None:
        return None
    found = PairedReadings(first, second)
    return found if found.possible.any() else None


def compute_reading_differences(
    readings: Mapping[str, PairedReadings], *, confidence: float = CONFIDENCE, seed: int = SEED
) -> dict[str, Difference]:
    """Return, from their readings, the differences of the metrics that some problem has a value of in both runs."""
    valued = {name: each for name, each in readings.items() if each.members.any()}
    amounts = _amount_bounds({name: each for name, each in valued.items() if not is_share(name)}, confidence, seed)
    return {name: _difference(name, each, amounts.get(name), confidence) for name, each in valued.items()}


def share_interval(readings: PairedReadings, confidence: float) -> tuple[Bounds, "Missing | None"]:
    """Return the interval of a share's difference with missing completions, and the interval without their problems."""
    low, high = mean_interval(*readings.extremes(), -1.0, 1.0, confidence)
    baseline, candidate = readings.not_judged
    if not baseline and not candidate:
        return (low, high), None
    changes = readings.changes
    judged = mean_interval(changes, changes, -1.0, 1.0, confidence) if len(changes) else (None, None)
    return (low, high), Missing(baseline, candidate, *judged)


def _difference(name: str, readings: PairedReadings, amount: Bounds | None, confidence: float) -> Difference:
    members, changes = readings.members, readings.changes
    (low, high), missing = (amount, None) if amount is not None else share_interval(readings, confidence)
    judged = readings.baseline.judged & readings.candidate.judged
    return Difference(
        metric=name,
        problems=len(changes),
        left_out=int((judged & ~members).sum()),
        baseline=float(readings.baseline.values[members].mean()),
        candidate=float(readings.candidate.values[members].mean()),
        difference=float(changes.mean()),
        low=low,
        high=high,
        power=power_note(changes, confidence),
        missing=missing,
    )


def _amount_bounds(readings: Mapping[str, PairedReadings], confidence: float, seed: int) -> dict[str, Bounds]:
    """Return the bootstrap interval of each amount's difference, where it holds. All share the draws."""
    if not readings:
        return {}
    above = [np.where(each.members, each.candidate.values - each.baseline.values, 0.0) for each in readings.values()]
    below = np.stack([each.members.astype(np.float64) for each in readings.values()], axis=1)
    rng = np.random.default_rng([seed, crc32(b"pairs")])
    drawn = bootstrap_ratios(np.stack(above, axis=1), below, rng, confidence=confidence)
    bounds: dict[str, Bounds] = dict(zip(readings, drawn, strict=True))
    for name, each in readings.items():
        changes = each.changes
        if len(changes) < MIN_PROBLEMS or np.count_nonzero(changes) < MIN_ON_A_SIDE or np.ptp(changes) == 0:
            bounds[name] = None, None
    return bounds
