"""Differences of metrics over paired problems, with a paired bootstrap interval. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np

from evalrun_aggregator.comparing.pairing import PairedDataset
from evalrun_aggregator.comparing.power import PowerNote, power_note
from evalrun_aggregator.figures import Mask
from evalrun_aggregator.intervals import CONFIDENCE, Floats, bootstrap_ratios
from evalrun_aggregator.metrics import SEED, problem_values

COMPARED: Final = (
    "accepted_at_1", "solved_within_budget", "pass_ratio_mean", "exec_success_rate", "wrong_answer_rate",
    "runtime_error_rate", "timeout_rate", "syntax_error_rate", "empty_output_rate", "zero_reward_rate",
    "avg_total_gen_tokens", "avg_gen_time", "avg_total_judge_time",
)  # fmt: skip
"""What a comparison shows, in this order; pass@k comes after the first."""


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
    low: float
    high: float
    power: PowerNote


def paired_differences(
    paired: PairedDataset, metrics: Collection[str], *, confidence: float = CONFIDENCE, seed: int = SEED
) -> dict[str, Difference]:
    """Give the difference of each metric that some problem has a value of in both runs, in the order asked for.

    The interval is the percentile bootstrap over problems: 10,000 draws of as many pairs as there are. All metrics
    share the draws, and neither their number nor the order of the results changes an interval.

    Args:
        paired: the problems.
        metrics: names of metrics that are means over problems; `pass_at_<k>` for any k.
        confidence: of the two-sided interval.
        seed: of the draws.
    """
    values = {name: pair for name in metrics if (pair := _paired_values(paired, name)) is not None}
    if not values:
        return {}
    above = np.stack([np.where(members, theirs - ours, 0.0) for ours, theirs, members in values.values()], axis=1)
    below = np.stack([members.astype(np.float64) for _, _, members in values.values()], axis=1)
    bounds = bootstrap_ratios(above, below, np.random.default_rng([seed, crc32(b"pairs")]), confidence=confidence)
    differences = {}
    for (name, (ours, theirs, members)), (low, high) in zip(values.items(), bounds, strict=True):
        first, second = ours[members], theirs[members]
        change = second - first
        mean = float(change.mean())
        differences[name] = Difference(
            metric=name,
            problems=len(change),
            left_out=len(members) - len(change),
            baseline=float(first.mean()),
            candidate=float(second.mean()),
            difference=mean,
            # Missing only where no draw of 10,000 holds a problem with a value.
            low=mean if low is None else low,
            high=mean if high is None else high,
            power=power_note(change, confidence),
        )
    return differences


def pass_at_names(names: Iterable[str]) -> list[str]:
    """Give the names of pass@k metrics among others, by k."""
    return sorted({name for name in names if name.startswith("pass_at_")}, key=k_of)


def k_of(metric: str) -> int:
    """Give the k of a `pass_at_<k>`."""
    return int(metric.removeprefix("pass_at_"))


def _paired_values(paired: PairedDataset, metric: str) -> tuple[Floats, Floats, Mask] | None:
    ks = [k_of(metric)] if metric.startswith("pass_at_") else []
    budget = metric == "solved_within_budget"
    first = problem_values(paired.baseline, ks, budget=budget).get(metric)
    second = problem_values(paired.candidate, ks, budget=budget).get(metric)
    if first is None or second is None:
        return None
    members = first[1] & second[1]
    return (first[0], second[0], members) if members.any() else None
