"""Rates of an earlier run, from its results. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from evalrun_results.samples import SampleResult

JUDGED_LATE: Final = 0.1
"""Share of a run's time after its last answer beyond which judging, and not generation, decided how long it took."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Average cost of an answer of a dataset."""

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
    """From the first request to the last answer."""
    working_seconds: float
    """From the first request to the last verdict."""
    start_seconds: float
    """Everything else: starting parts and engines, writing outputs."""
    servers: int
    """Replicas or endpoints."""
    slots: int | None
    """Programs that its sandboxes ran at once; None if unknown."""

    @property
    def answers(self) -> int:
        """Answers of all datasets."""
        return sum(each.count for each in self.datasets.values())

    @property
    def judge_decided(self) -> bool:
        """Whether judging, and not generation, decided how long it took."""
        return self.working_seconds - self.generating_seconds > JUDGED_LATE * self.working_seconds

    def of(self, dataset: str) -> Answers:
        """Return what an answer of a dataset took; of one that the run had not, the mean over all answers."""
        if dataset in self.datasets:
            return self.datasets[dataset]
        known = [each for each in self.datasets.values() if each.tokens is not None]
        tokens = _mean([(each.count, each.tokens or 0.0) for each in known])
        judge = _mean([(each.count, each.judge_seconds) for each in self.datasets.values()])
        return Answers(self.answers, tokens if known else None, judge or 0.0)


def measured(results: Iterable[SampleResult], *, elapsed: float, servers: int, slots: int | None) -> Rates | None:
    """Return how fast a run was; None if it generated nothing, or its results have no times.

    Args:
        results: every pass.
        elapsed: seconds from its start to its end.
        servers: its replicas or endpoints.
        slots: programs that its sandboxes ran at once; None if unknown.
    """
    counts: dict[str, int] = {}
    tokens: dict[str, float | None] = {}
    judge: dict[str, float] = {}
    first, last_answer, last_verdict = float("inf"), 0.0, 0.0
    for result in results:
        name = result.dataset
        counts[name] = counts.get(name, 0) + 1
        so_far = tokens.setdefault(name, 0.0)
        tokens[name] = None if so_far is None or result.output_tokens is None else so_far + result.output_tokens
        judge[name] = judge.get(name, 0.0) + (result.total_judge_time or 0.0)
        if result.started_at is not None:
            first = min(first, result.started_at)
            last_answer = max(last_answer, result.started_at + (result.gen_seconds or 0.0))
        if result.judged_at is not None:
            last_verdict = max(last_verdict, result.judged_at)
    working = max(last_answer, last_verdict) - first
    if not counts or working <= 0:
        return None
    datasets = {}
    for name, count in counts.items():
        spent = tokens[name]
        datasets[name] = Answers(count, None if spent is None else spent / count, judge[name] / count)
    return Rates(datasets, last_answer - first, working, max(0.0, elapsed - working), max(1, servers), slots)


def _mean(parts: list[tuple[int, float]]) -> float | None:
    total = sum(count for count, _ in parts)
    return sum(count * value for count, value in parts) / total if total else None
