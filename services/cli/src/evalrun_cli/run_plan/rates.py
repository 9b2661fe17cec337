"""Rates of an earlier run, from its results. Pure."""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from evalrun_results.samples import SampleResult

JUDGED_LATE: Final = 0.1
"""Share of a run's time after its last completion beyond which judging, and not generation, decided its duration."""
STEADY: Final = 0.9
"""Share of a run's completions and verdicts that shows its pace: the rest waits for the slowest program or completion.
"""


@dataclass(frozen=True, slots=True)
class Answers:
    """Average cost of a completion of a dataset."""

    count: int
    tokens: float | None
    """Output tokens; None if its servers did not count them."""
    judge_seconds: float
    """CPU seconds of its tests."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a run."""

    datasets: dict[str, Answers]
    generating_seconds: float
    """Seconds from the first request to the last completion."""
    working_seconds: float
    """Seconds from the first request to the last verdict."""
    start_seconds: float
    """Seconds of everything else: starting parts and engines, writing outputs."""
    servers: int
    """Replicas or endpoints."""
    slots: int | None
    """Programs that its sandboxes ran at once; None if unknown."""
    generating_tail: float = 0.0
    """Seconds of generating that a longer run has no more of: the last completions' time beyond the others' pace."""
    working_tail: float = 0.0
    """The same for working: 1.2 of 2.1 s if one of 200 programs takes a second (benchmarks/plan_accuracy.py)."""

    @property
    def answers(self) -> int:
        """Number of completions of all datasets."""
        return sum(each.count for each in self.datasets.values())

    @property
    def judge_decided(self) -> bool:
        """Whether judging, and not generation, decided how long the run took."""
        return self.working_seconds - self.generating_seconds > JUDGED_LATE * self.working_seconds

    def find_answers(self, dataset: str) -> Answers:
        """Return the rates of a dataset; for a dataset that the run did not have, the mean over all datasets."""
        if dataset in self.datasets:
            return self.datasets[dataset]
        known = [each for each in self.datasets.values() if each.tokens is not None]
        tokens = _mean([(each.count, each.tokens or 0.0) for each in known])
        judge = _mean([(each.count, each.judge_seconds) for each in self.datasets.values()])
        return Answers(self.answers, tokens if known else None, judge or 0.0)


def measure_rates(results: Iterable[SampleResult], *, elapsed: float, servers: int, slots: int | None) -> Rates | None:
    """Return the rates of a run, or None if it generated nothing or its results have no times.

    Args:
        results: results of every pass.
        elapsed: seconds from the start of the run to its end.
        servers: its replicas or endpoints.
        slots: programs that its sandboxes ran at once; None if unknown.
    """
    counts: dict[str, int] = {}
    tokens: dict[str, float | None] = {}
    judge: dict[str, float] = {}
    first, answered, judged = float("inf"), array("d"), array("d")
    for result in results:
        name = result.dataset
        counts[name] = counts.get(name, 0) + 1
        so_far = tokens.setdefault(name, 0.0)
        tokens[name] = None if so_far is None or result.output_tokens is None else so_far + result.output_tokens
        judge[name] = judge.get(name, 0.0) + (result.total_judge_time or 0.0)
        if result.started_at is not None:
            first = min(first, result.started_at)
            answered.append(result.started_at + (result.gen_seconds or 0.0))
        if result.judged_at is not None:
            judged.append(result.judged_at)
    last_answer = max(answered, default=0.0)
    working = max(last_answer, max(judged, default=0.0)) - first
    if not counts or working <= 0:
        return None
    datasets = {}
    for name, count in counts.items():
        spent = tokens[name]
        datasets[name] = Answers(count, None if spent is None else spent / count, judge[name] / count)
    return Rates(
        datasets,
        last_answer - first,
        working,
        max(0.0, elapsed - working),
        max(1, servers),
        slots,
        _tail(answered, first, last_answer - first),
        _tail(judged, first, working),
    )


def _tail(ends: Sequence[float], first: float, seconds: float) -> float:
    """Return the extra time of the slowest completions, compared with the pace of the first `STEADY` of them."""
    if not ends:
        return 0.0
    steady = sorted(ends)[math.ceil(STEADY * len(ends)) - 1] - first
    return max(0.0, seconds - steady / STEADY)


def _mean(parts: list[tuple[int, float]]) -> float | None:
    total = sum(count for count, _ in parts)
    return sum(count * value for count, value in parts) / total if total else None
