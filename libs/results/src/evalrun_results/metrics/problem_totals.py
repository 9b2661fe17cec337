"""Totals that metrics keep from a stream of results: a few numbers per problem. Pure.

A million samples are never held. Which samples were judged and accepted are bit masks, so that noise-floor passes can
be compared with the run itself in whatever order they come.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from evalrun.judge.v1 import judge_pb2 as pb
from evalrun_results.samples import FINAL_STATUS_NAMES, SampleResult

FINAL_STATUSES = tuple(FINAL_STATUS_NAMES.values())
NOT_JUDGED_REPEATS: Final = "not_judged_repeats"
"""The count of noise-floor samples that were not judged: no figure of the run itself misses them."""
NO_REASON: Final = "no verdict came"
"""The cause of a sample that was never judged: nothing was generated, or the run was stopped."""
OTHER_CAUSES: Final = "other causes"
MAX_CAUSES: Final = 1000
"""Different causes that are kept of a dataset."""


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
    pass_ratio_high_sum: float = 0.0
    """The same had every assumed time-out passed."""
    pass_ratio_count: int = 0
    zero_rewards: int = 0
    score_sum: float = 0.0
    score_count: int = 0
    data_source: str = ""
    output_tokens: int = 0
    with_tokens: int = 0
    """Samples whose tokens were counted."""
    gen_seconds: float = 0.0
    with_gen_seconds: int = 0
    judge_seconds: float = 0.0
    repeats: dict[int, Outcomes] | None = None
    """Noise-floor passes by number, or None if there are none, to save memory."""

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
            self.pass_ratio_high_sum += result.pass_ratio_high or 0.0
            self.pass_ratio_count += 1
            self.zero_rewards += result.pass_ratio == 0
        if result.score is not None:
            self.score_sum += result.score
            self.score_count += 1
            self.data_source = result.data_source
            self.zero_rewards += result.pass_ratio is None and result.score == 0

    def add_repeat(self, result: SampleResult) -> None:
        """Add one sample of a noise-floor pass."""
        if self.repeats is None:
            self.repeats = {}
        self.repeats.setdefault(result.repeat, Outcomes()).add(result)

    def flips(self) -> tuple[int, int]:
        """Return how many verdicts of noise-floor passes differ from the run's own, and how many can be compared."""
        own, differ, comparable = self.outcomes, 0, 0
        for repeat in (self.repeats or {}).values():
            both = own.judged & repeat.judged
            comparable += both.bit_count()
            differ += (both & (own.accepted ^ repeat.accepted)).bit_count()
        return differ, comparable


def has_memory_limit(verdict: pb.Verdict | None) -> bool:
    """Return whether a test was stopped at the memory limit."""
    return verdict is not None and any(test.status == pb.TEST_STATUS_MEMORY_LIMIT for test in verdict.tests)


@dataclass(slots=True)
class DatasetTotals:
    """One dataset's results, summed."""

    problems: dict[str, ProblemTotals] = field(default_factory=dict)
    all_output_tokens: int = 0
    """Of every pass and turn: what its share of the GPUs is measured by."""
    tokens_known: bool = False
    flags: Counter[str] = field(default_factory=Counter)
    """Samples by what is noted of them (`metrics.FLAGGED`), and those of noise-floor passes that were not judged."""
    causes: Counter[str] = field(default_factory=Counter)
    """Samples that were not judged, by `not_judged_reason`."""

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
        self.flags["with_assumed_timeouts"] += result.judged and result.assumed_timeouts > 0
        self.flags["truncated"] += result.finish_reason == "length"
        self.flags["without_token_count"] += result.output_tokens is None
        if result.verdict is not None:
            self.flags["cached"] += result.verdict.cached
            self.flags["forgeable"] += result.verdict.forgeable
            for leniency in result.verdict.rests_on:
                self.flags[f"accepted_by_{leniency}"] += 1
        if not result.judged:
            self._add_cause(result.not_judged_reason or NO_REASON)

    def _add_cause(self, cause: str) -> None:
        """Count one answer that was not judged; texts of their own, beyond many others, are not kept."""
        known = cause in self.causes or len(self.causes) < MAX_CAUSES
        self.causes[cause if known else OTHER_CAUSES] += 1
