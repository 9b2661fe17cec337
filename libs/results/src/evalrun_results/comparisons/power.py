"""Statistical power of a comparison: detectable differences and required problems. Pure."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from evalrun_api.v1alpha1 import Gate
from evalrun_results.metrics.intervals import MIN_PROBLEMS, Floats
from evalrun_results.sequential.expected_size import problems_needed

POWER: Final = 0.8
ASSUMED_FLIPS: Final = 0.05
"""Assumed share of the completions that flip between two equally good runs, before it is measured. The message of a
decided gate uses the measured flips."""
UNSEEN: Final = 1.5
"""Problems that the interval's margin grows by: the lost one that was not seen, and the skewness it brings. With it an
equal run of which 2 to 20 % flip passes a margin of 2 or 5 points in 73 to 82 % of 2,000 simulated runs."""
MIN_SIGNIFICANT_FLIPS: Final = 6
"""With fewer problems that differ, all the same way, McNemar's test cannot reach p < 0.05: 2 / 2^5 is 0.0625."""


@dataclass(frozen=True, slots=True)
class PowerNote:
    """The minimum detectable difference of a comparison."""

    problems: int
    smallest_difference: float | None
    """A true difference of this size would be seen (95 % interval without 0) in 80 % of such comparisons; None where
    too few problems differ to say."""
    problems_needed: int | None
    """So that a true difference as large as the one measured would be; None where none was measured."""
    variance: float
    """Of the differences over problems, with a won and a lost problem more: what was not seen may still happen."""


def power_note(differences: Floats, confidence: float = 0.95) -> PowerNote:
    """Return the differences that a comparison with this spread could have detected.

    The usual formula of a paired comparison, (z_(1+confidence)/2 + z_power) * s / sqrt(n), with s the standard
    deviation of the differences over problems (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640, section 5).

    Args:
        differences: one per problem.
        confidence: of the two-sided interval.
    """
    count = len(differences)
    spread = float(np.std(differences, ddof=1)) if count > 1 else 0.0
    variance = float(np.var(np.append(differences, [1.0, -1.0]), ddof=1))
    if spread == 0 or np.count_nonzero(differences) < 2:
        return PowerNote(count, None, None, variance)
    reach = _reach(confidence) * spread
    measured = abs(float(differences.mean()))
    needed = math.ceil((reach / measured) ** 2) if measured > 0 else None
    return PowerNote(count, reach / math.sqrt(count), needed, variance)


def problems_to_see(difference: float, variance: float, confidence: float) -> int:
    """Return the number of problems with which a true difference is seen 4 times in 5, as `power_note` counts."""
    return max(MIN_PROBLEMS, math.ceil(_reach(confidence) ** 2 * variance / difference**2))


def margin_to_pass(problems: int, variance: float, confidence: float) -> float:
    """Return the smallest margin with which a gate passes a candidate equal to its baseline with 80 % probability.

    Args:
        problems: compared, at least 1.
        variance: of the differences over problems. With one sample per problem it is the share of answers that flip.
        confidence: of the gate's interval.
    """
    usual = _reach(confidence) * math.sqrt(variance / problems) + UNSEEN / problems
    return max(usual, 1 - math.exp(math.log((1 - confidence) / 2) / problems))


def problems_to_pass(margin: float, variance: float, confidence: float) -> int | None:
    """Return the number of problems with which a gate passes an equal candidate 4 times in 5, or None if there is no
    margin.

    The interval counts a lost problem that was not seen, which costs a margin of `UNSEEN` / problems.
    """
    if margin <= 0:
        return None
    reach = _reach(confidence) * math.sqrt(variance)
    root = (math.sqrt(reach**2 + 4 * UNSEEN * margin) - reach) / (2 * UNSEEN)
    return max(MIN_PROBLEMS, least_problems(margin, confidence), math.ceil(1 / root**2))


def least_problems(margin: float, confidence: float) -> int:
    """Return the number of problems that a gate needs to pass runs that agree on every problem.

    A loss of the margin that falls on whole problems is not met at all among n problems with probability
    (1 - margin)^n, which must be at most the gate's error.
    """
    return 1 if margin >= 1 else math.ceil(math.log((1 - confidence) / 2) / math.log1p(-margin))


def gate_outlook(gate: Gate, problems: int | None, *, family: int = 1) -> str | None:
    """Describe what a gate needs if it can hardly decide with the given problems; else return None.

    Args:
        gate: as the spec has it.
        problems: number in its datasets; None if not counted yet.
        family: how many gates the run has.
    """
    margin, confidence = -gate.min_gain, 1 - (1 - gate.confidence_value) / family
    if gate.sequential:
        return _sequential_outlook(gate, problems, confidence)
    if gate.min_improvement is not None:
        return None
    if margin == 0:
        return (
            'gate.maxRegression: "0" passes only a better run; with an equal one the gate is always inconclusive: '
            'write the acceptable loss, e.g. "0.05"'
        )
    needed = problems_to_pass(margin, ASSUMED_FLIPS, confidence)
    if needed is None or (problems is not None and problems >= needed):
        return None
    says = f"gates: with maxRegression {margin:g}, about {needed:,} problems are needed to pass an equal run"
    if problems is not None:
        least = margin_to_pass(max(problems, MIN_PROBLEMS), ASSUMED_FLIPS, confidence)
        says += f", and {gate.label} has {problems}: use more, or a maxRegression of about {least:.2f}"
    return f"{says} (if {ASSUMED_FLIPS:.0%} of the answers flip between equal runs)"


def _sequential_outlook(gate: Gate, problems: int | None, confidence: float) -> str | None:
    """Return a warning if an equal run would often stay undecided; None if not, or for a benchmark, which always
    decides."""
    if gate.population == "benchmark" or problems is None:
        return None
    if problems_needed(problems, ASSUMED_FLIPS, gate.min_gain, gate.population, confidence) is not None:
        return None
    return (
        f"gates: {gate.label} has {problems} problems, which leave an equal run undecided more than once in 5 "
        f"(population: similar; if {ASSUMED_FLIPS:.0%} of the answers flip): take more, a larger maxRegression, or "
        "population: benchmark"
    )


def _reach(confidence: float) -> float:
    normal = NormalDist()
    return normal.inv_cdf((1 + confidence) / 2) + normal.inv_cdf(POWER)
