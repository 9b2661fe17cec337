"""Metrics of EVAL@turns: which samples are accepted by each turn. Pure.

Counted from the bit masks that a problem's totals keep for each turn. Two rules settle every case:
- An accepted answer settles its sample; without a further answer a sample keeps its last verdict.
- A sample with an answer that could not be judged, and none accepted, is excluded from that turn on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from evalrun_results.metrics.problem_columns import Counts
from evalrun_results.metrics.problem_totals import ProblemTotals


@dataclass(frozen=True, slots=True)
class Reached:
    """Samples of a problem at the end of a turn, one bit per sample."""

    known: int
    """Known samples: the last completion so far was judged, or an earlier completion was accepted."""
    accepted: int
    """Samples accepted in this turn or an earlier turn."""
    failed_first: int
    """Known samples whose first completion failed."""
    zero: int
    """Known samples whose last completion so far passed no test."""
    newly_accepted: int
    """Accepted in this turn, and in none before."""


def list_turn_states(problem: ProblemTotals, turns: int) -> list[Reached]:
    """Return the state of a problem's samples at the end of each turn."""
    first = problem.outcomes
    failed_first = first.judged & ~first.accepted
    accepted = unknown = zero = 0
    found = []
    for turn in range(turns):
        of_turn = first if turn == 0 else problem.later_turn(turn).outcomes
        zeros = problem.zero_samples if turn == 0 else problem.later_turn(turn).zero_samples
        new = of_turn.accepted & ~accepted
        accepted |= new
        unknown = (unknown | (of_turn.seen & ~of_turn.judged)) & ~accepted
        zero = ((zero & ~of_turn.judged) | zeros) & ~accepted
        known = first.seen & ~unknown
        found.append(Reached(known, accepted, failed_first & known, zero & known, new))
    return found


def count_turns(problems: Sequence[ProblemTotals]) -> int:
    """Return the turns that any sample has had."""
    return max((1 + max(problem.turns or {}, default=0) for problem in problems), default=1)


def turns_spent(by_turn: Sequence[Reached]) -> tuple[int, int]:
    """Return the turns up to acceptance, summed over the accepted samples, and their number."""
    counts = [each.newly_accepted.bit_count() for each in by_turn]
    return sum((turn + 1) * count for turn, count in enumerate(counts)), sum(counts)


def count_bits(masks: Iterable[int]) -> Counts:
    """Return the number of samples in each mask."""
    return np.fromiter((mask.bit_count() for mask in masks), dtype=np.int64)
