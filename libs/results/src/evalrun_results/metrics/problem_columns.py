"""A dataset's problems as numpy columns, one row per problem in the order of their ids. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalrun_results.metrics.activity import WorkShares
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.pass_at_k import pass_at_k
from evalrun_results.metrics.problem_totals import FINAL_STATUSES, DatasetTotals, ProblemTotals

Counts: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ProblemColumns:
    """Columns of the run itself; problems that have only repeats are left out.

    They are ordered by problem id, so that metrics do not depend on the order of the verdicts.
    """

    seen: Counts
    """Samples."""
    judged: Counts
    accepted: Counts
    statuses: dict[str, Counts]
    """Judged samples by final status."""
    memory_limit: Counts
    guarded: Counts
    forgeable: Counts
    extraction_fallbacks: Counts
    pass_ratio_sum: Floats
    pass_ratio_high_sum: Floats
    pass_ratio_count: Counts
    zero_rewards: Counts
    score_sum: Floats
    score_count: Counts
    data_sources: tuple[str, ...]
    """Data sources of the problems that have a score."""
    output_tokens: Floats
    tokens_known: Mask
    """Problems whose completions all have counted tokens."""
    gen_seconds: Floats
    gen_seconds_known: Mask
    judge_seconds: Floats
    flips: Counts
    comparable: Counts
    """Verdicts of noise-floor repeats that can be compared with the run's own."""
    solved: Mask
    """Problems with an accepted completion, of any sample and turn."""
    problems: tuple[ProblemTotals, ...]
    """Problems that the columns are computed from."""

    @classmethod
    def from_totals(cls, totals: DatasetTotals) -> Self:
        """Turn a dataset's problems into columns."""
        problems = [problem for _, problem in sorted(totals.problems.items()) if problem.outcomes.seen]
        flips = [problem.flips() for problem in problems]
        answers = _counts(problem.answers for problem in problems)
        return cls(
            seen=_counts(problem.outcomes.seen.bit_count() for problem in problems),
            judged=_counts(problem.outcomes.judged.bit_count() for problem in problems),
            accepted=_counts(problem.outcomes.accepted.bit_count() for problem in problems),
            statuses={name: _counts(problem.statuses.get(name, 0) for problem in problems) for name in FINAL_STATUSES},
            memory_limit=_counts(problem.memory_limit for problem in problems),
            guarded=_counts(problem.guarded for problem in problems),
            forgeable=_counts(problem.forgeable for problem in problems),
            extraction_fallbacks=_counts(problem.extraction_fallbacks for problem in problems),
            pass_ratio_sum=_floats(problem.pass_ratio_sum for problem in problems),
            pass_ratio_high_sum=_floats(problem.pass_ratio_high_sum for problem in problems),
            pass_ratio_count=_counts(problem.pass_ratio_count for problem in problems),
            zero_rewards=_counts(problem.zero_rewards for problem in problems),
            score_sum=_floats(problem.score_sum for problem in problems),
            score_count=_counts(problem.score_count for problem in problems),
            data_sources=tuple(problem.data_source for problem in problems if problem.score_count),
            output_tokens=_floats(problem.output_tokens for problem in problems),
            tokens_known=_counts(problem.with_tokens for problem in problems) == answers,
            gen_seconds=_floats(problem.gen_seconds for problem in problems),
            gen_seconds_known=_counts(problem.with_gen_seconds for problem in problems) == answers,
            judge_seconds=_floats(problem.judge_seconds for problem in problems),
            flips=_counts(differ for differ, _ in flips),
            comparable=_counts(comparable for _, comparable in flips),
            solved=np.fromiter((problem.accepted_samples > 0 for problem in problems), dtype=np.bool_),
            problems=tuple(problems),
        )

    @property
    def rewarded(self) -> Counts:
        """Samples whose tests or grader give a score. A problem has either tests or a grader."""
        return np.maximum(self.pass_ratio_count, self.score_count)

    def score(self) -> Floats:
        """Return each problem's mean score; 0 if none is known."""
        return self.score_sum / np.maximum(self.score_count, 1)

    def score_means(self) -> dict[str, float]:
        """Return verl's figure for each data source: the mean over its problems of their mean scores."""
        scores: dict[str, list[float]] = {}
        for source, score in zip(self.data_sources, self.score()[self.score_count > 0], strict=True):
            scores.setdefault(source, []).append(float(score))
        return {source: sum(found) / len(found) for source, found in sorted(scores.items())}

    def pass_at(self, k: int) -> Floats:
        """Return each problem's unbiased pass@k; 0 where fewer than k samples were judged."""
        pairs = np.stack([self.judged, self.accepted], axis=1)
        # The pairs are few, because many problems share their counts.
        kinds, kind_of = np.unique(pairs, axis=0, return_inverse=True)
        values = _floats(pass_at_k(int(n), int(c), k) if n >= k else 0.0 for n, c in kinds)
        return values[kind_of.ravel()]

    def pass_at_bounds(self, k: int) -> tuple[Floats, Floats]:
        """Return each problem's pass@k if every sample that was not judged had failed, and if it had been accepted."""
        accepted_if = (self.accepted, self.accepted + self.seen - self.judged)
        low, high = (_compute_pass_or_any(k, self.seen, accepted) for accepted in accepted_if)
        return low, high

    def compute_accepted_bounds(self) -> tuple[float, float]:
        """Return [accepted / all, (accepted + not judged) / all], as means over problems: the unit of pass@1."""
        if len(self.seen) == 0:
            return 0.0, 1.0
        low = (self.accepted / self.seen).mean()
        high = ((self.accepted + self.seen - self.judged) / self.seen).mean()
        return float(low), float(high)

    def active_seconds(self, shares: WorkShares) -> Floats:
        """Return each problem's part of the time in which the run was at work."""
        work: Floats = shares.generation * self.gen_seconds + shares.judging * self.judge_seconds + shares.problem
        return work

    def gpu_seconds(self, total: float | None) -> Floats:
        """Split the dataset's GPU seconds over its problems by output tokens; an unknown count is taken as the mean."""
        if not total or len(self.seen) == 0:
            return np.zeros(len(self.seen))
        known = self.output_tokens[self.tokens_known]
        weights = np.where(self.tokens_known, self.output_tokens, known.mean() if len(known) else 0.0)
        if weights.sum() == 0:
            weights = np.ones(len(weights))
        parts: Floats = total * weights / weights.sum()
        return parts


def _compute_pass_or_any(k: int, seen: Counts, accepted: Counts) -> Floats:
    """Return pass@k of each problem; with fewer than k samples, whether any was accepted."""
    pairs = zip(seen.tolist(), accepted.tolist(), strict=True)
    return np.array([pass_at_k(n, c, k) if n >= k else float(c > 0) for n, c in pairs])


def _counts(values: Iterable[int]) -> Counts:
    return np.fromiter(values, dtype=np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)
