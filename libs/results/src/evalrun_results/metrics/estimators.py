"""The estimator of each metric: its value for every problem of a dataset. Pure.

`evalrun_registry.metrics` describes, under the same name, a metric's title, aggregation over problems, and where it is
shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from evalrun_results.metrics.activity import WorkShares
from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.pass_at_k import default_ks
from evalrun_results.metrics.problem_columns import Counts, ProblemColumns
from evalrun_results.metrics.turns import Reached, count_bits, list_turn_states, turns_spent


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour; None if the run names no price."""

    gpu_hour: float | None = None
    cpu_hour: float | None = None
    """Price of an hour of CPU time of judged programs."""


NO_PRICES: Final = Prices()


@dataclass(frozen=True)
class Measurements:
    """The problems of a dataset, with facts of the run that are no results."""

    columns: ProblemColumns
    turns: int = 1
    """Number of turns of the protocol."""
    gpu_seconds: float | None = None
    """Share of the dataset; None if unknown."""
    prices: Prices = NO_PRICES
    work: WorkShares | None = None
    """The active time that each unit of work took; None where there is no throughput."""

    @property
    def default_ks(self) -> tuple[int, ...]:
        """The k of pass@k that are reported if none are asked for."""
        return default_ks(int(self.columns.seen.max(initial=0)))

    @cached_property
    def by_turn(self) -> list[list[Reached]]:
        """The state of each problem's samples at the end of each turn, by problem and turn."""
        return [list_turn_states(problem, self.turns) for problem in self.columns.problems]

    def select_turn(self, turn: int) -> list[Reached]:
        """Return the state of each problem's samples at the end of a turn, counted from 1."""
        return [turns[turn - 1] for turns in self.by_turn]


@dataclass(frozen=True, slots=True)
class ProblemValues:
    """A metric of each problem, as a quotient. The metric's `Interval` says how they are combined."""

    above: Floats | Counts | Mask
    below: Floats | Counts
    members: Mask
    """The problems that have a value."""
    left_out: int | None = None
    """Problems that `counts.left_out_problems` reports for the metric; None: it reports none."""
    above_had_all_passed: Floats | None = None
    """`above` if every assumed timeout had passed, for a figure with a `high_bound`."""
    bounds: Callable[[], tuple[Floats, Floats]] | None = None
    """Least and greatest value of each problem, whatever its unjudged samples would be; None: as for a share. NaN if a
    problem may turn out to have no value."""
    unknown: Counts | None = None
    """Samples of each problem that are missing for the metric; None: those that are seen, but not in `below`."""
    possible: Mask | None = None
    """The problems that have a value once every sample is judged, or may have one; None: those with samples."""

    @property
    def values(self) -> Floats:
        """The value of each problem; 0 without a value."""
        quotients: Floats = self.above / np.maximum(self.below, 1)
        return np.where(self.members, quotients, 0.0)


Estimator: TypeAlias = Callable[[Measurements, int], ProblemValues | None]
"""Returns the values for one k or turn (0 for other metrics), or None if the run has no such metric."""


def value_bounds(found: ProblemValues, columns: ProblemColumns) -> tuple[Floats, Floats]:
    """Return the numbers between which each problem's value lies: they differ where a sample was not judged."""
    if found.bounds is not None:
        return found.bounds()
    seen, hits = np.maximum(columns.seen, 1), found.above.astype(np.float64)
    return hits / seen, (hits + count_missing_samples(found, columns)) / seen


def count_missing_samples(found: ProblemValues, columns: ProblemColumns) -> Counts:
    """Return the number of missing samples of each problem, for a metric that is a share."""
    return columns.seen - found.below.astype(np.int64) if found.unknown is None else found.unknown


def _share_of_judged(hits: Callable[[ProblemColumns], Counts]) -> Estimator:
    def values(given: Measurements, _number: int) -> ProblemValues:
        columns = given.columns
        return ProblemValues(hits(columns), columns.judged, columns.judged > 0)

    return values


def _make_status_estimator(*statuses: str) -> Estimator:
    def hits(columns: ProblemColumns) -> Counts:
        total: Counts = np.sum([columns.statuses[status] for status in statuses], axis=0)
        return total

    return _share_of_judged(hits)


def _make_amount_estimator(
    value: Callable[[ProblemColumns], Floats], members: Callable[[ProblemColumns], Mask]
) -> Estimator:
    def values(given: Measurements, _number: int) -> ProblemValues:
        found = value(given.columns)
        return ProblemValues(found, np.ones(len(found)), members(given.columns))

    return values


def _pass_ratio(given: Measurements, _number: int) -> ProblemValues:
    columns = given.columns
    count = columns.pass_ratio_count
    return ProblemValues(
        columns.pass_ratio_sum,
        count,
        count > 0,
        above_had_all_passed=columns.pass_ratio_high_sum,
        unknown=np.maximum(columns.seen - count - columns.score_count, 0),
        possible=(count > 0) | (columns.score_count == 0),
    )


def _estimate_not_judged(given: Measurements, _number: int) -> ProblemValues:
    columns = given.columns
    return ProblemValues(columns.seen - columns.judged, columns.seen, columns.seen > 0)


def _zero_reward(given: Measurements, _number: int) -> ProblemValues:
    columns = given.columns
    return ProblemValues(
        columns.zero_rewards, columns.judged, columns.judged > 0, unknown=columns.seen - columns.rewarded
    )


def _score(given: Measurements, _number: int) -> ProblemValues | None:
    """Return the scores of the problems that a grader scored, as verl computes them; None without a grader."""
    columns = given.columns
    scored = columns.score_count > 0
    return ProblemValues(columns.score_sum, columns.score_count, scored) if scored.any() else None


def _select_token_counted(columns: ProblemColumns) -> Mask:
    return (columns.judged > 0) & columns.tokens_known


def _select_timed(columns: ProblemColumns) -> Mask:
    return (columns.judged > 0) & columns.gen_seconds_known


def _select_judged(columns: ProblemColumns) -> Mask:
    return columns.judged > 0


_gen_time: Final = _make_amount_estimator(lambda columns: columns.gen_seconds, _select_timed)
_judge_time: Final = _make_amount_estimator(lambda columns: columns.judge_seconds, _select_judged)


def _throughput(given: Measurements, _number: int) -> ProblemValues:
    """Return a quotient of problems and seconds: each problem carries a part of the run's active time."""
    judged = (given.columns.judged > 0).astype(np.float64)
    seconds = np.zeros(len(judged)) if given.work is None else given.columns.active_seconds(given.work)
    known = given.work is not None and bool(judged.any())
    return ProblemValues(judged, seconds, np.full(len(judged), known))


def _per_solved(columns: ProblemColumns, spent: Floats, members: Mask) -> ProblemValues:
    return ProblemValues(spent, columns.solved.astype(np.float64), members)


def _tokens_per_solved(given: Measurements, _number: int) -> ProblemValues:
    return _per_solved(given.columns, given.columns.output_tokens, given.columns.tokens_known)


def _judge_time_per_solved(given: Measurements, _number: int) -> ProblemValues:
    return _per_solved(given.columns, given.columns.judge_seconds, given.columns.seen > 0)


def _gpu_seconds_per_solved(given: Measurements, _number: int) -> ProblemValues:
    columns, seconds = given.columns, given.gpu_seconds
    known = np.full(len(columns.seen), bool(seconds))
    return _per_solved(columns, columns.gpu_seconds(seconds), (columns.seen > 0) & known)


def _money_per_solved(given: Measurements, _number: int) -> ProblemValues:
    columns, prices = given.columns, given.prices
    gpu = (prices.gpu_hour or 0.0) / 3600 if given.gpu_seconds else 0.0
    cpu = (prices.cpu_hour or 0.0) / 3600
    known = np.full(len(columns.seen), bool(gpu or cpu))
    money = columns.gpu_seconds(given.gpu_seconds) * gpu + columns.judge_seconds * cpu
    return _per_solved(columns, money, (columns.seen > 0) & known)


def _pass_at(given: Measurements, k: int) -> ProblemValues:
    columns = given.columns
    enough = columns.judged >= k
    values = columns.pass_at(k)
    return ProblemValues(
        values,
        np.ones(len(values)),
        enough,
        left_out=int((~enough).sum()),
        bounds=lambda: columns.pass_at_bounds(k),
        unknown=columns.seen - columns.judged,
        possible=columns.seen >= k,
    )


def _estimate_solved_within_budget(given: Measurements, _number: int) -> ProblemValues:
    """Leave out unsolved problems with a sample that was not judged, because it is unknown whether they are solved."""
    columns = given.columns
    told = columns.solved | (columns.judged == columns.seen)
    solved = columns.solved.astype(np.float64)
    return ProblemValues(
        columns.solved,
        np.ones_like(columns.seen),
        told,
        left_out=int((~told).sum()),
        bounds=lambda: (solved, np.where(columns.seen > columns.judged, 1.0, solved)),
        unknown=np.where(columns.solved, 0, columns.seen - columns.judged),
    )


def _estimate_accepted_by_turn(given: Measurements, turn: int) -> ProblemValues:
    known = count_bits(each.known for each in given.select_turn(turn))
    return ProblemValues(count_bits(each.accepted for each in given.select_turn(turn)), known, known > 0)


def _zero_reward_by_turn(given: Measurements, turn: int) -> ProblemValues:
    known = count_bits(each.known for each in given.select_turn(turn))
    return ProblemValues(count_bits(each.zero for each in given.select_turn(turn)), known, known > 0)


def _tokens_of_turn(given: Measurements, turn: int) -> ProblemValues:
    """Return the tokens of a turn's completions, for the problems with such a turn."""
    pairs = [problem.turn_tokens(turn - 1) for problem in given.columns.problems]
    tokens: Floats = np.array([count for count, _ in pairs], dtype=np.float64)
    return ProblemValues(tokens, np.ones(len(pairs)), np.array([known for _, known in pairs], dtype=np.bool_))


def _recovery_by_turn(given: Measurements, turn: int) -> ProblemValues:
    at = given.select_turn(turn)
    failed = count_bits(each.failed_first for each in at)
    recovered = count_bits(each.failed_first & each.accepted for each in at)
    unknown = given.columns.seen - count_bits(each.known for each in at)
    many, unsure = np.maximum(failed + unknown, 1), (failed == 0) & (unknown > 0)
    return ProblemValues(
        recovered,
        failed,
        failed > 0,
        bounds=lambda: (
            np.where(unsure, np.nan, recovered / many),
            np.where(unsure, np.nan, (recovered + unknown) / many),
        ),
        unknown=unknown,
        possible=failed + unknown > 0,
    )


def _recovery(given: Measurements, _number: int) -> ProblemValues:
    """Exclude no problem, but report problems with a sample that has an unjudged completion and no accepted one."""
    found = _recovery_by_turn(given, given.turns)
    pairs = zip(given.by_turn, given.columns.problems, strict=True)
    left_out = sum(turns[-1].known != problem.outcomes.seen for turns, problem in pairs)
    return replace(found, left_out=left_out)


def _turns_to_accept(given: Measurements, _number: int) -> ProblemValues:
    spent = [turns_spent(turns) for turns in given.by_turn]
    turns, solved = (np.array([pair[part] for pair in spent], dtype=np.float64) for part in (0, 1))
    return ProblemValues(turns, solved, solved > 0)


def _flip_rate(given: Measurements, _number: int) -> ProblemValues | None:
    columns = given.columns
    if not columns.comparable.any():
        return None
    return ProblemValues(columns.flips, columns.comparable, columns.comparable > 0)


ESTIMATORS: Final[Mapping[str, Estimator]] = {
    "accepted_at_1": _share_of_judged(lambda columns: columns.accepted),
    "pass_ratio_mean": _pass_ratio,
    "pass_ratio_p50": _pass_ratio,
    "pass_ratio_p90": _pass_ratio,
    "exec_success_rate": _make_status_estimator("success", "wrong_answer"),
    "syntax_error_rate": _make_status_estimator("syntax_error"),
    "runtime_error_rate": _make_status_estimator("runtime_error"),
    "timeout_rate": _make_status_estimator("timeout"),
    "wrong_answer_rate": _make_status_estimator("wrong_answer"),
    "empty_output_rate": _make_status_estimator("empty_output"),
    "memory_limit_rate": _share_of_judged(lambda columns: columns.memory_limit),
    "guardrail_rate": _share_of_judged(lambda columns: columns.guarded),
    "forgeable_rate": _share_of_judged(lambda columns: columns.forgeable),
    "extraction_fallback_rate": _share_of_judged(lambda columns: columns.extraction_fallbacks),
    "api_error_rate": _estimate_not_judged,
    "zero_reward_rate": _zero_reward,
    "score_mean": _score,
    "avg_total_gen_tokens": _make_amount_estimator(lambda columns: columns.output_tokens, _select_token_counted),
    "avg_gen_time": _gen_time,
    "p50_gen_time": _gen_time,
    "p95_gen_time": _gen_time,
    "avg_total_judge_time": _judge_time,
    "p50_total_judge_time": _judge_time,
    "p95_total_judge_time": _judge_time,
    "throughput": _throughput,
    "cost_per_solved_tokens": _make_amount_estimator(
        lambda columns: columns.output_tokens, lambda columns: columns.solved & columns.tokens_known
    ),
    "cost_per_solved_judge_time": _make_amount_estimator(
        lambda columns: columns.judge_seconds, lambda columns: columns.solved
    ),
    "tokens_per_solved": _tokens_per_solved,
    "judge_time_per_solved": _judge_time_per_solved,
    "gpu_seconds_per_solved": _gpu_seconds_per_solved,
    "money_per_solved": _money_per_solved,
    "pass_at_<k>": _pass_at,
    "solved_within_budget": _estimate_solved_within_budget,
    "accepted_by_turn_<t>": _estimate_accepted_by_turn,
    "zero_reward_rate_by_turn_<t>": _zero_reward_by_turn,
    "avg_gen_tokens_turn_<t>": _tokens_of_turn,
    "recovery_rate_by_turn_<t>": _recovery_by_turn,
    "recovery_rate": _recovery,
    "turns_to_accept": _turns_to_accept,
    "flip_rate": _flip_rate,
}
"""Estimators by the name of the metric's description."""
