"""Totals that metrics keep from a stream of results: a few numbers per problem. Pure.

A million samples are never held. Which samples were judged and accepted are bit masks, so that noise-floor repeats can
be compared with the run itself in whatever order they come.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.samples import FINAL_STATUS_NAMES, SampleResult

FINAL_STATUSES = tuple(FINAL_STATUS_NAMES.values())
NOT_JUDGED_REPEATS: Final = "not_judged_repeats"
"""The count of repeats that were not judged: no metric of the run itself misses them."""
NOT_JUDGED_TURNS: Final = "not_judged_later_turns"
"""The count of later turns' completions that were not judged: metrics by turn miss their samples."""
NO_REASON: Final = "no verdict came"
"""The cause of a sample that was never judged: nothing was generated, or the run was stopped."""
FORGED_WHERE: Final = "judgeMode: Submit, tests beside the program, or operators of its own classes"
"""Causes that make a verdict forgeable."""
APART_CAUSES: Final = frozenset(("shared_process", "own_operators"))
"""Causes that make a verdict forgeable although tests and program were judged apart, as their family is. With any other
cause the tests ran in the program's process: they were judged together."""
NO_CAUSE: Final = "shared_process"
"""The cause of verdicts that were stored before causes were."""

FALLBACKS: Final = frozenset(
    {
        pb.EXTRACTION_METHOD_UNTAGGED_BLOCK,
        pb.EXTRACTION_METHOD_UNCLOSED_BLOCK,
        pb.EXTRACTION_METHOD_WHOLE_TEXT,
        pb.EXTRACTION_METHOD_NONE,
    }
)
"""Ways in which a program is found where no tagged code block holds it."""

OTHER_CAUSES: Final = "other causes"
MAX_CAUSES: Final = 1000
"""Maximum number of different causes that are kept per dataset."""


@dataclass(slots=True)
class Outcomes:
    """Samples of a problem in a repeat, one bit per sample."""

    seen: int = 0
    judged: int = 0
    accepted: int = 0

    def add(self, result: SampleResult) -> None:
        """Record a sample.

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
class LaterTurn:
    """Completions of a problem in a later turn."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    zero_samples: int = 0
    """Samples whose completion passed no test, a bit per sample."""
    output_tokens: int = 0
    with_tokens: int = 0


NO_TURN: Final = LaterTurn()
"""Of a turn that no sample had; never changed."""


@dataclass(slots=True)
class ProblemTotals:
    """Sums over a problem's samples in the run itself (repeat 0).

    Verdicts are those of the first turn; tokens and seconds are those of all turns.
    """

    outcomes: Outcomes = field(default_factory=Outcomes)
    statuses: dict[str, int] = field(default_factory=dict)
    """Judged samples by final status."""
    memory_limit: int = 0
    guarded: int = 0
    """Judged samples with a guardrail: nothing to run, no code found, cut or truncated."""
    forgeable: int = 0
    extraction_fallbacks: int = 0
    """Judged samples whose program was not in a tagged code block, and had to be looked for elsewhere."""
    pass_ratio_sum: float = 0.0
    pass_ratio_high_sum: float = 0.0
    """The same sum if every assumed timeout had passed."""
    pass_ratio_count: int = 0
    zero_rewards: int = 0
    zero_samples: int = 0
    """The samples in `zero_rewards`, a bit a sample."""
    score_sum: float = 0.0
    score_count: int = 0
    data_source: str = ""
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    answers: int = 0
    """Number of completions of all turns."""
    output_tokens: int = 0
    with_tokens: int = 0
    """Number of completions whose tokens were counted."""
    gen_seconds: float = 0.0
    with_gen_seconds: int = 0
    judge_seconds: float = 0.0
    repeats: dict[int, Outcomes] | None = None
    """Noise-floor repeats by number, or None if there are none, to save memory."""
    turns: dict[int, LaterTurn] | None = None
    """Later turns by number, from 1; None if there are none."""

    def add(self, result: SampleResult) -> None:
        """Add a sample's first completion in the run itself."""
        self.outcomes.add(result)
        self._add_work(result)
        if result.judged:
            self._add_verdict(result)

    def add_turn(self, result: SampleResult) -> None:
        """Add a completion of a later turn."""
        if self.turns is None:
            self.turns = {}
        turn = self.turns.setdefault(result.turn, LaterTurn())
        turn.outcomes.add(result)
        turn.zero_samples |= is_zero_reward(result) << result.sample
        turn.output_tokens += result.output_tokens or 0
        turn.with_tokens += result.output_tokens is not None
        self._add_work(result)

    def later_turn(self, turn: int) -> LaterTurn:
        """Return a later turn; empty if no sample had it."""
        return (self.turns or {}).get(turn, NO_TURN)

    def turn_tokens(self, turn: int) -> tuple[int, bool]:
        """Return the output tokens of a turn's completions, and whether there are any and all were counted."""
        if turn:
            later = self.later_turn(turn)
            return later.output_tokens, later.with_tokens == later.outcomes.seen.bit_count() > 0
        others = (self.turns or {}).values()
        tokens = self.output_tokens - sum(later.output_tokens for later in others)
        counted = self.with_tokens - sum(later.with_tokens for later in others)
        return tokens, counted == self.outcomes.seen.bit_count() > 0

    @property
    def accepted_samples(self) -> int:
        """Samples with an accepted completion in any turn, one bit per sample."""
        accepted = self.outcomes.accepted
        for turn in (self.turns or {}).values():
            accepted |= turn.outcomes.accepted
        return accepted

    def _add_work(self, result: SampleResult) -> None:
        self.answers += 1
        if result.output_tokens is not None:
            self.output_tokens += result.output_tokens
            self.with_tokens += 1
        if result.gen_seconds is not None:
            self.gen_seconds += result.gen_seconds
            self.with_gen_seconds += 1
        self.judge_seconds += result.total_judge_time or 0.0

    def _add_verdict(self, result: SampleResult) -> None:
        status = result.final_status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.memory_limit += status == "runtime_error" and has_memory_limit(result)
        if result.verdict is not None:
            self.guarded += len(result.verdict.guardrails) > 0
            self.forgeable += result.verdict.forgeable
            self.extraction_fallbacks += result.verdict.extraction in FALLBACKS
        if result.pass_ratio is not None:
            self.pass_ratio_sum += result.pass_ratio
            self.pass_ratio_high_sum += result.pass_ratio_high or 0.0
            self.pass_ratio_count += 1
        if result.score is not None:
            self.score_sum += result.score
            self.score_count += 1
            self.data_source = result.data_source
        if is_zero_reward(result):
            self.zero_rewards += 1
            self.zero_samples |= 1 << result.sample

    def add_repeat(self, result: SampleResult) -> None:
        """Add a sample of a noise-floor repeat."""
        if self.repeats is None:
            self.repeats = {}
        self.repeats.setdefault(result.repeat, Outcomes()).add(result)

    def flips(self) -> tuple[int, int]:
        """Return the number of verdicts of noise-floor repeats that differ from the run's own, and the number that
        can be compared."""
        own, differ, comparable = self.outcomes, 0, 0
        for repeat in (self.repeats or {}).values():
            both = own.judged & repeat.judged
            comparable += both.bit_count()
            differ += (both & (own.accepted ^ repeat.accepted)).bit_count()
        return differ, comparable


def is_zero_reward(result: SampleResult) -> bool:
    """Return whether no test passed; for a completion with a grader's score only, whether its score is 0."""
    return (result.score if result.pass_ratio is None else result.pass_ratio) == 0


def has_memory_limit(result: SampleResult) -> bool:
    """Return whether a test was stopped at the memory limit."""
    return any(test.status == pb.TEST_STATUS_MEMORY_LIMIT for test in result.tests)


@dataclass(slots=True)
class DatasetTotals:
    """Sums over a dataset's results."""

    problems: dict[str, ProblemTotals] = field(default_factory=dict)
    all_output_tokens: int = 0
    """Tokens of every pass and turn, by which its share of the GPUs is measured."""
    tokens_known: bool = False
    flags: Counter[str] = field(default_factory=Counter)
    """Samples by what is noted of them (`metrics.FLAGGED`), and those of noise-floor repeats that were not judged."""
    causes: Counter[str] = field(default_factory=Counter)
    """Samples that were not judged, by `not_judged_reason`."""
    forgeable_causes: Counter[str] = field(default_factory=Counter)
    """Samples with a verdict that can be forged, by `forgeable_cause`."""
    tests: Counter[int] = field(default_factory=Counter)
    """Tests of the run itself, of judged first answers, by `TestStatus`."""

    def add(self, result: SampleResult) -> None:
        """Add a result of any repeat."""
        if result.output_tokens is not None:
            self.all_output_tokens += result.output_tokens
            self.tokens_known = True
        problem = self.problems.get(result.problem_id)
        if problem is None:
            problem = self.problems[result.problem_id] = ProblemTotals(difficulty=result.difficulty, tags=result.tags)
        if result.turn != 0:
            problem.add_turn(result)
            if not result.judged:
                self.flags[NOT_JUDGED_TURNS] += 1
                self._add_cause(result.not_judged_reason or NO_REASON)
            return
        if result.repeat != 0:
            problem.add_repeat(result)
            self.flags[NOT_JUDGED_REPEATS] += not result.judged
            return
        problem.add(result)
        if result.finish_reason == "length":
            self.flags["truncated"] += 1
        if result.output_tokens is None:
            self.flags["without_token_count"] += 1
        if result.verdict is not None:
            self._add_flags(result, result.verdict)
        if not result.judged:
            self._add_cause(result.not_judged_reason or NO_REASON)

    def _add_flags(self, result: SampleResult, verdict: pb.Verdict) -> None:
        if result.judged:
            self.tests.update([test.status for test in result.tests])
        if result.judged and result.assumed_timeouts:
            self.flags["with_assumed_timeouts"] += 1
        if result.judged and len(result.tests) > 1:
            self.flags["with_several_tests"] += 1
        if verdict.cached:
            self.flags["cached"] += 1
        if verdict.forgeable:
            self.flags["forgeable"] += 1
            self.forgeable_causes[verdict.forgeable_cause or NO_CAUSE] += 1
        for leniency in verdict.rests_on[:]:
            self.flags[f"accepted_by_{leniency}"] += 1

    def _add_cause(self, cause: str) -> None:
        """Count a completion that was not judged. Beyond many distinct texts, new texts are not kept."""
        known = cause in self.causes or len(self.causes) < MAX_CAUSES
        self.causes[cause if known else OTHER_CAUSES] += 1
