"""Times at which a run was at work, and each problem's part of them: the basis of throughput. Pure.

Datasets of a run overlap: one is judged while the next is generated. So their windows cannot be compared: the later of
two equal datasets would seem slower. Instead the run's active time is split over problems by the work that each
caused: seconds of generation by the seconds its requests took, seconds of judging by the CPU seconds of its tests, and
a second with both half and half. Equal datasets get equal figures, wherever they stand in the file.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final, Self

from evalrun_results.samples import SampleResult

PAUSE_SECONDS: Final = 1.0
"""A shorter gap between two pieces of work is no pause. It keeps the number of pieces small, too."""


@dataclass(slots=True)
class ActiveTime:
    """The union of intervals, as disjoint pieces in order."""

    _starts: list[float] = field(default_factory=list)
    _ends: list[float] = field(default_factory=list)

    def add(self, start: float, end: float) -> None:
        """Add an interval. An interval that ends before it starts is empty."""
        end = max(start, end)
        first = bisect_left(self._ends, start - PAUSE_SECONDS)
        after = bisect_right(self._starts, end + PAUSE_SECONDS)
        if first < after:
            if self._starts[first] <= start and end <= self._ends[first]:
                return
            start, end = min(start, self._starts[first]), max(end, self._ends[after - 1])
        self._starts[first:after] = [start]
        self._ends[first:after] = [end]

    def union(self, other: Self) -> Self:
        """Return the union of both sets of intervals."""
        made = type(self)(self._starts.copy(), self._ends.copy())
        for start, end in zip(other._starts, other._ends, strict=True):
            made.add(start, end)
        return made

    @property
    def seconds(self) -> float:
        """Total length."""
        return sum(self._ends) - sum(self._starts)


@dataclass(frozen=True, slots=True)
class WorkShares:
    """Seconds of the run's active time for each unit of work."""

    generation: float
    """Seconds per second of a request."""
    judging: float
    """Seconds per CPU second of a test."""
    problem: float
    """Seconds per problem, if work of a kind took time and none of it was measured."""


@dataclass(slots=True)
class RunActivity:
    """Collects the results of a run in any order."""

    _generation: ActiveTime = field(default_factory=ActiveTime)
    _judging: ActiveTime = field(default_factory=ActiveTime)

    def add(self, result: SampleResult) -> None:
        """Record when the sample was generated and judged, unless its completion was made elsewhere."""
        if result.started_at is None:
            return
        generated_at = result.started_at + (result.gen_seconds or 0.0)
        self._generation.add(result.started_at, generated_at)
        if result.judged_at is not None:
            # A test's wall seconds are known, but not its start: a completion waits for its turn before.
            began = max(generated_at, result.judged_at - _sum_judging_seconds(result))
            self._judging.add(began, result.judged_at)

    def shares(self, generation_work: float, judging_work: float, problems: int) -> WorkShares | None:
        """Return the run's active time per unit of work, or None if no time is known.

        Args:
            generation_work: seconds of all requests together.
            judging_work: CPU seconds of all tests together.
            problems: of the run.
        """
        generation, judging = self._generation.seconds, self._judging.seconds
        either = self._generation.union(self._judging).seconds
        if either <= 0 or problems == 0:
            return None
        both = max(0.0, generation + judging - either)
        generation, judging = generation - both / 2, judging - both / 2
        # The gap lies between a request and a test, where it is no pause.
        gaps = either / (generation + judging)
        generation, judging = generation * gaps, judging * gaps
        unmeasured = (0.0 if generation_work else generation) + (0.0 if judging_work else judging)
        return WorkShares(
            generation=generation / generation_work if generation_work else 0.0,
            judging=judging / judging_work if judging_work else 0.0,
            problem=unmeasured / problems,
        )


def _sum_judging_seconds(result: SampleResult) -> float:
    if result.verdict is None or result.verdict.cached:
        return 0.0
    return sum([test.duration for test in result.tests])
