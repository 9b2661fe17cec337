"""A judged completion, from which metrics, QA logs and the rows of `results.jsonl` are made. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from evalrun_proto.judge.v1 import judge_pb2 as pb

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

TEST_STATUS_NAMES: Final = {
    number: name.removeprefix("TEST_STATUS_").lower() for name, number in pb.TestStatus.items() if number
}
"""Proto value to the status in docs/verdicts.md, e.g. `wrong_answer`."""

FINAL_STATUS_NAMES: Final = {
    number: name.removeprefix("FINAL_STATUS_").lower() for name, number in pb.FinalStatus.items() if number
}
EXTRACTION_NAMES: Final = {
    number: name.removeprefix("EXTRACTION_METHOD_").lower() for name, number in pb.ExtractionMethod.items() if number
}
GUARDRAIL_NAMES: Final = {
    number: name.removeprefix("GUARDRAIL_").lower() for name, number in pb.Guardrail.items() if number
}


@dataclass(slots=True)
class SampleResult:
    """A completion of a problem with its verdict.

    Nothing changes it. It is not frozen, because a frozen object takes five times as long to create, and a run has a
    million. What several of its readers derive from the verdict is derived once: each look at a message's field costs
    as much as a function call, and each pass over its tests makes their objects again.
    """

    dataset: str
    problem_id: str
    sample: int
    turn: int
    repeat: int
    """Number of the repeat; 0 is the run itself."""
    prompt: str
    """The prompt as it was sent, after templates; a chat of several messages as a single text, each with its role."""
    response: str
    ground_truth: Mapping[str, object] | str
    difficulty: str
    model: str
    finish_reason: str
    prompt_tokens: int | None
    output_tokens: int | None
    """None if neither the server nor a tokenizer counted the tokens."""
    gen_seconds: float | None
    """Seconds from request to last byte; None if the completion was made elsewhere."""
    started_at: float | None
    """Unix seconds of the request; None if the completion was made elsewhere, so that its throughput is unknown."""
    judged_at: float | None
    """Unix seconds at which the verdict was stored."""
    verdict: pb.Verdict | None
    """None if absent, e.g. if nothing was generated or the judge gave up."""
    not_judged_reason: str
    mode: str
    """append, standalone or auto."""
    language: str
    messages: tuple[Mapping[str, str], ...] = ()
    """The chat as it was sent; empty for a completion prompt, and if the completion was made elsewhere."""
    data_source: str = ""
    tags: tuple[str, ...] = ()
    """Topics of the problem."""
    log_probs: Sequence[float] = ()
    """Log-probability of each token of the completion; empty if none were requested or given."""

    tests: Sequence[pb.TestResult] = field(init=False, repr=False, compare=False)
    """Tests of the verdict; empty without a verdict."""
    judged: bool = field(init=False, repr=False, compare=False)
    """Whether there is a verdict that counts; otherwise nothing counts against the model."""
    accepted: bool | None = field(init=False, repr=False, compare=False)
    """Whether every test passed; None if the completion was not judged: an infrastructure failure is never a score."""
    pass_ratio: float | None = field(init=False, repr=False, compare=False)
    """Passed / tests; None if a test could not be judged."""
    pass_ratio_high: float | None = field(init=False, repr=False, compare=False)
    """The pass ratio if every assumed timeout had passed; None if there is no pass ratio."""
    assumed_timeouts: int = field(init=False, repr=False, compare=False)
    """Tests that were stopped at the short limit, after too many timeouts, and counted as failed."""
    score: float | None = field(init=False, repr=False, compare=False)
    """Score by the dataset's grader; None if there is no grader, or no score."""
    final_status: str = field(init=False, repr=False, compare=False)
    """Final status (docs/verdicts.md); `api_error` if it was not judged."""
    total_judge_time: float | None = field(init=False, repr=False, compare=False)
    """CPU seconds of the runs that decided, summed over the tests; a cached verdict counts its original's. None without
    a verdict. CPU seconds because a busy sandbox stretches wall time (docs/outputs.md)."""

    def __post_init__(self) -> None:
        verdict = self.verdict
        self.judged = verdict is not None and verdict.judged
        self.accepted = self.pass_ratio = self.pass_ratio_high = self.score = None
        self.final_status = "api_error"
        if verdict is None:
            self.tests, self.assumed_timeouts, self.total_judge_time = (), 0, None
            return
        self.tests = verdict.tests[:]
        self.assumed_timeouts = verdict.assumed_timeouts
        self.total_judge_time = sum([test.cpu_time for test in self.tests])
        if not self.judged:
            return
        self.accepted = verdict.accepted
        self.final_status = FINAL_STATUS_NAMES[verdict.final_status]
        if verdict.HasField("pass_ratio"):
            self.pass_ratio = verdict.pass_ratio
            self.pass_ratio_high = max(self.pass_ratio, verdict.pass_ratio_high)
        if verdict.HasField("score"):
            self.score = verdict.score
