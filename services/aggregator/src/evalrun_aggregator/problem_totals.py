"""What metrics keep of a stream of results: a few numbers a problem. Pure.

A million samples are never held. Which samples were judged and accepted are bit masks, so that noise-floor passes can
be compared with the run itself in whatever order they come.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from evalrun.judge.v1 import judge_pb2 as pb
from evalrun_aggregator.results import FINAL_STATUS_NAMES, SampleResult

FINAL_STATUSES = tuple(FINAL_STATUS_NAMES.values())
NOT_JUDGED_REPEATS: Final = "not_judged_repeats"
"""The count of noise-floor samples that were not judged: no figure of the run itself misses them."""


@dataclass(slots=True)
class Outcomes:
    """Samples of one problem in one pass, a bit a sample."""

    seen: int = 0
    judged: int = 0
    accepted: int = 0

    def add(self, result: SampleResult) -> None:
        """Note one sample.

        Raises:
            ValueError: it was noted before; it would count twice.
        """
        bit = 1 << result.sample
        if self.seen & bit:
            raise ValueError(f"{result.dataset} {result.problem_id} sample {result.sample} was given twice")
        self.seen |= bit
        if result.judged:
            self.judged |= bit
            if result.accepted:
                self.accepted |= bit


@dataclass(slots=True)
class ProblemTotals:
    """One problem's samples of the run itself (repeat 0, turn 0), summed."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    statuses: dict[str, int] = field(default_factory=dict)
    """Judged samples by final status."""
    memory_limit: int = 0
    pass_ratio_sum: float = 0.0
    pass_ratio_count: int = 0
    zero_rewards: int = 0
    output_tokens: int = 0
    with_tokens: int = 0
    """Samples whose tokens were counted."""
    gen_seconds: float = 0.0
    with_gen_seconds: int = 0
    judge_seconds: float = 0.0
    last_verdict_at: float | None = None
    repeats: dict[int, Outcomes] | None = None
    """Noise-floor passes by number; None where there are none, to save the room."""

    def add(self, result: SampleResult) -> None:
        """Add one sample of the run itself."""
        self.outcomes.add(result)
        if result.output_tokens is not None:
            self.output_tokens += result.output_tokens
            self.with_tokens += 1
        if result.gen_seconds is not None:
            self.gen_seconds += result.gen_seconds
            self.with_gen_seconds += 1
        self.judge_seconds += result.total_judge_time or 0.0
        if result.judged:
            self._add_verdict(result)

    def _add_verdict(self, result: SampleResult) -> None:
        status = result.final_status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.memory_limit += status == "runtime_error" and has_memory_limit(result.verdict)
        if result.pass_ratio is not None:
            self.pass_ratio_sum += result.pass_ratio
            self.pass_ratio_count += 1
            self.zero_rewards += result.pass_ratio == 0
        if result.judged_at is not None:
            self.last_verdict_at = max(result.judged_at, self.last_verdict_at or result.judged_at)

    def add_repeat(self, result: SampleResult) -> None:
        """Add one sample of a noise-floor pass."""
        if self.repeats is None:
            self.repeats = {}
        self.repeats.setdefault(result.repeat, Outcomes()).add(result)

    def flips(self) -> tuple[int, int]:
        """Give how many verdicts of noise-floor passes differ from the run's own, and how many can be compared."""
        own, differ, comparable = self.outcomes, 0, 0
        for repeat in (self.repeats or {}).values():
            both = own.judged & repeat.judged
            comparable += both.bit_count()
            differ += (both & (own.accepted ^ repeat.accepted)).bit_count()
        return differ, comparable


def has_memory_limit(verdict: pb.Verdict | None) -> bool:
    """Say whether a test was stopped at the memory limit."""
    return verdict is not None and any(test.status == pb.TEST_STATUS_MEMORY_LIMIT for test in verdict.tests)


@dataclass(slots=True)
class DatasetTotals:
    """One dataset's results, summed."""

    problems: dict[str, ProblemTotals] = field(default_factory=dict)
    all_output_tokens: int = 0
    """Of every pass and turn: what its share of the GPUs is measured by."""
    tokens_known: bool = False
    first_request_at: float | None = None
    flags: Counter[str] = field(default_factory=Counter)
    """Samples that were truncated, cached, forgeable, without a token count, of noise-floor passes and not judged."""

    def add(self, result: SampleResult) -> None:
        """Add one result of whichever pass."""
        if result.output_tokens is not None:
            self.all_output_tokens += result.output_tokens
            self.tokens_known = True
        if result.turn != 0:
            return
        problem = self.problems.get(result.problem_id)
        if problem is None:
            problem = self.problems[result.problem_id] = ProblemTotals()
        if result.repeat != 0:
            problem.add_repeat(result)
            self.flags[NOT_JUDGED_REPEATS] += not result.judged
            return
        problem.add(result)
        if result.started_at is not None:
            self.first_request_at = min(result.started_at, self.first_request_at or result.started_at)
        self.flags["truncated"] += result.finish_reason == "length"
        self.flags["without_token_count"] += result.output_tokens is None
        if result.verdict is not None:
            self.flags["cached"] += result.verdict.cached
            self.flags["forgeable"] += result.verdict.forgeable
