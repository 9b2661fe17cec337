"""Metrics of EVAL@turns: what samples reach by each turn. Pure.

Counted from the bit masks that a problem's totals keep for each turn. Two rules settle every case:
- An accepted answer settles its sample; without a further answer a sample keeps its last verdict.
- A sample with an answer that could not be judged, and none accepted, says nothing from that turn on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evalrun_results.metrics.figures import FigureSheet
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.problem_columns import Counts
from evalrun_results.metrics.problem_totals import ProblemTotals

RISING_BY_TURN: Final = ("accepted_by_turn_", "recovery_rate_by_turn_")
BY_TURN: Final = (*RISING_BY_TURN, "zero_reward_rate_by_turn_")
"""Beginnings of the names of metrics that are shares, each followed by the number of a turn, from 1."""
RECOVERY: Final = "recovery_rate"


@dataclass(frozen=True, slots=True)
class Reached:
    """Samples of one problem at the end of one turn, a bit a sample."""

    known: int
    """Samples that say something: their last answer so far was judged, or an earlier one was accepted."""
    accepted: int
    """Accepted in this turn or an earlier one."""
    failed_first: int
    """Of the known: those whose first answer failed."""
    zero: int
    """Of the known: those whose last answer so far passed no test."""
    newly_accepted: int
    """Accepted in this turn, and in none before."""


def reached(problem: ProblemTotals, turns: int) -> list[Reached]:
    """Return what a problem's samples have reached at the end of each turn."""
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


def add_turn_figures(sheet: FigureSheet, problems: Sequence[ProblemTotals], turns: int) -> None:
    """Report the metrics of each turn.

    Args:
        sheet: over these problems.
        problems: in the sheet's order.
        turns: turns of the protocol.
    """
    by_problem = [reached(problem, turns) for problem in problems]
    for turn in range(turns):
        at = [each[turn] for each in by_problem]
        known, accepted = _bits(each.known for each in at), _bits(each.accepted for each in at)
        some = known > 0
        sheet.share(f"accepted_by_turn_{turn + 1}", accepted, known, some)
        sheet.share(f"zero_reward_rate_by_turn_{turn + 1}", _bits(each.zero for each in at), known, some)
        _tokens(sheet, problems, turn)
        if turn == 0:
            continue
        failed, recovered = _bits(e.failed_first for e in at), _bits(e.failed_first & e.accepted for e in at)
        sheet.share(f"recovery_rate_by_turn_{turn + 1}", recovered, failed, failed > 0)
        if turn == turns - 1:
            sheet.share(RECOVERY, recovered, failed, failed > 0)
    spent = [_turns_spent(each) for each in by_problem]
    turns_sum, solved = (np.array([pair[part] for pair in spent], dtype=np.float64) for part in (0, 1))
    sheet.ratio("turns_to_accept", turns_sum, solved, solved > 0)


def left_out_at(problems: Sequence[ProblemTotals], turns: int) -> int:
    """Return how many problems have a sample that says nothing at the last turn: not judged on the way there."""
    return sum(reached(problem, turns)[-1].known != problem.outcomes.seen for problem in problems)


def turns_of(problems: Sequence[ProblemTotals]) -> int:
    """Return the turns that any sample has had."""
    return max((1 + max(problem.turns or {}, default=0) for problem in problems), default=1)


def turns_asked_for(metric: str, problems: Sequence[ProblemTotals]) -> int:
    """Return how many turns a metric is about: 0 for one that is not about turns."""
    if metric == RECOVERY:
        return max(2, turns_of(problems))
    for beginning in BY_TURN:
        if metric.startswith(beginning):
            return int(metric.removeprefix(beginning))
    return 0


def _turns_spent(by_turn: Sequence[Reached]) -> tuple[int, int]:
    """Return the turns up to acceptance, summed over the accepted samples, and their number."""
    counts = [each.newly_accepted.bit_count() for each in by_turn]
    return sum((turn + 1) * count for turn, count in enumerate(counts)), sum(counts)


def _tokens(sheet: FigureSheet, problems: Sequence[ProblemTotals], turn: int) -> None:
    """Report the tokens of one turn's answers, over the problems that had such a turn."""
    pairs = [problem.turn_tokens(turn) for problem in problems]
    values: Floats = np.array([tokens for tokens, _ in pairs], dtype=np.float64)
    sheet.mean(f"avg_gen_tokens_turn_{turn + 1}", values, np.array([known for _, known in pairs], dtype=np.bool_))


def _bits(masks: Iterable[int]) -> Counts:
    return np.fromiter((mask.bit_count() for mask in masks), dtype=np.int64)
