"""Estimates the problems and samples that a gate needs, from a pilot and its baseline. Pure."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.differences import Difference
from evalrun_results.comparisons.gate import SINGLE_ANSWER, correct_confidence, sample_size
from evalrun_results.comparisons.power import margin_to_pass, problems_to_pass
from evalrun_results.metrics.intervals import MIN_PROBLEMS
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.sequential.expected_size import problems_needed


def needs(
    gate: Gate, baseline: Mapping[str, DatasetTotals] | None, pilot: Mapping[str, DatasetTotals], *, family: int = 1
) -> str:
    """Describe how many problems and samples a gate needs, in a few sentences, if runs differ like a pilot.

    Raises:
        UnusableGateError: a run lacks the dataset, or no problem has a value in both runs.
    """
    found = sample_size(gate, baseline, pilot)
    return f"{gate.label} {gate.metric}: " + "; ".join(_sentences(gate, found, baseline, pilot, family))


def _sentences(
    gate: Gate,
    found: Difference,
    baseline: Mapping[str, DatasetTotals] | None,
    pilot: Mapping[str, DatasetTotals],
    family: int,
) -> Iterator[str]:
    variance, margin, confidence = found.power.variance, -gate.min_gain, correct_confidence(gate, family)
    problems = max(found.problems, MIN_PROBLEMS)
    needed = problems_to_pass(margin, variance, confidence)
    enough = "no number of problems is enough" if needed is None else f"about {needed:,} problems are needed"
    yield (
        f"to pass an equal run 4 times in 5 with maxRegression {max(margin, 0.0):g}, {enough}; {problems:,} problems "
        f"allow a maxRegression of about {margin_to_pass(problems, variance, confidence):.3f} "
        f"(estimated from {found.problems:,} problems of the pilot)"
    )
    if gate.sequential:
        # With a single sample per problem the variance is the share that flips.
        flips = min(1.0, variance)
        after = problems_needed(problems, flips, gate.min_gain, gate.population, confidence)
        yield (
            f"sequential, population {gate.population}: an equal run is decided after {after:,} of {problems:,} "
            "problems or fewer 4 times in 5"
            if after is not None
            else f"sequential, population {gate.population}: {problems:,} problems do not decide an equal run 4 times "
            "in 5"
        )
    if gate.metric in SINGLE_ANSWER and baseline is not None:
        yield samples_needed(gate, baseline, pilot, variance, found.problems, confidence)


def samples_needed(
    gate: Gate,
    baseline: Mapping[str, DatasetTotals],
    pilot: Mapping[str, DatasetTotals],
    variance: float,
    problems: int,
    confidence: float,
) -> str:
    """Describe how many samples per problem would suffice with the pilot's problems.

    The variance of the differences has two parts: real differences between problems, and chance within a problem,
    which shrinks with the number of samples (Miller 2024, section 3.2). Chance is estimated from the samples of each
    problem if there are several, or else from how often verdicts flip when the pilot is repeated
    (protocol.noiseFloorRepeats): an answer that flips with probability f has the variance f / 2.
    """
    names = gate.dataset_names
    within = _compute_variance_within(pilot, names), _compute_variance_within(baseline, names)
    samples = max(_samples(pilot, names), 1)
    known = [each for each in within if each is not None]
    if not known:
        return (
            "samples: one answer per problem cannot separate chance from real differences: run the pilot with several "
            "samples (EVAL@k), or repeat it (noiseFloorRepeats)"
        )
    # This is the variance of a difference of two single completions.
    once = 2 * float(np.mean(known))
    between = max(0.0, variance - once / samples)
    margin = -gate.min_gain
    allowed = 0.0 if margin <= 0 else variance * problems / max(1, problems_to_pass(margin, variance, confidence) or 1)
    says = f"samples: {once / 2:.3f} of the variance of an answer is chance within its problem"
    if allowed <= between or margin <= 0:
        return f"{says}; with these {problems:,} problems no number of samples is enough"
    return (
        f"{says}; with these {problems:,} problems about {max(1, math.ceil(once / (allowed - between))):,} per problem"
    )


def _compute_variance_within(run: Mapping[str, DatasetTotals], names: tuple[str, ...]) -> float | None:
    """Return the variance of completions within a problem, or None with a single completion per problem."""
    return chance_within(*(ProblemColumns.from_totals(run[name]) for name in names if name in run))


def chance_within(*columns: ProblemColumns) -> float | None:
    """Return the variance of an answer within its problem; None if no problem has several judged answers or repeats."""
    judged = np.concatenate([each.judged for each in columns]) if columns else np.zeros(0)
    accepted = np.concatenate([each.accepted for each in columns]) if columns else np.zeros(0)
    several = judged > 1
    if several.any():
        n, share = judged[several], accepted[several] / judged[several]
        return float((share * (1 - share) * n / (n - 1)).mean())
    comparable = sum(int(each.comparable.sum()) for each in columns)
    return sum(int(each.flips.sum()) for each in columns) / comparable / 2 if comparable else None


def _samples(run: Mapping[str, DatasetTotals], names: tuple[str, ...]) -> int:
    return max(
        (int(ProblemColumns.from_totals(run[name]).judged.max(initial=0)) for name in names if name in run), default=0
    )
