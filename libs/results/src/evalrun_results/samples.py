"""One judged completion, and the row that stands for it in `results.jsonl` and `results.parquet`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from evalrun.judge.v1 import judge_pb2 as pb

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

VERL_CODES: Final[Mapping[str, int]] = {
    "success": 1,
    "wrong_answer": 0,
    "api_error": -1,
    "runtime_error": -2,
    "memory_limit": -2,
    "timeout": -3,
    "assumed_timeout": -3,
    "compile_error": -4,
    "compile_timeout": -4,
}
"""verl's code of a test. True and False are written 1 and 0: a Parquet column has one type, and they are equal."""


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One completion of one problem with its verdict: what metrics, QA logs and results are made of."""

    dataset: str
    problem_id: str
    sample: int
    turn: int
    repeat: int
    """Noise-floor pass; 0 is the run itself."""
    prompt: str
    """As it was sent: after templates; a chat of several messages as one text, each with its role."""
    response: str
    ground_truth: Mapping[str, object] | str
    difficulty: str
    model: str
    finish_reason: str
    prompt_tokens: int | None
    output_tokens: int | None
    """None where neither the server nor a tokenizer counted them."""
    gen_seconds: float | None
    """Seconds from request to last byte; None where the answer was made elsewhere."""
    started_at: float | None
    """Unix seconds of the request; None where the answer was made elsewhere: throughput is not known then."""
    judged_at: float | None
    """Unix seconds at which the verdict was stored."""
    verdict: pb.Verdict | None
    """None if absent, e.g. if nothing was generated or the judge gave up."""
    not_judged_reason: str
    mode: str
    """append, standalone or auto."""
    language: str
    messages: tuple[Mapping[str, str], ...] = ()
    """The chat as it was sent; empty for a completion prompt, and where the answer was made elsewhere."""
    data_source: str = ""

    @property
    def judged(self) -> bool:
        """Whether there is a verdict that counts; otherwise nothing counts against the model."""
        return self.verdict is not None and self.verdict.judged

    @property
    def accepted(self) -> bool | None:
        """Whether every test passed; None where it was not judged: an infra failure is never a score."""
        return self.verdict.accepted if self.verdict is not None and self.verdict.judged else None

    @property
    def pass_ratio(self) -> float | None:
        """Passed / tests; None where a test could not be judged."""
        if self.verdict is None or not self.verdict.judged or not self.verdict.HasField("pass_ratio"):
            return None
        return self.verdict.pass_ratio

    @property
    def pass_ratio_high(self) -> float | None:
        """The pass ratio had every assumed time-out passed; None where the pass ratio is."""
        if self.pass_ratio is None or self.verdict is None:
            return None
        return max(self.pass_ratio, self.verdict.pass_ratio_high)

    @property
    def score(self) -> float | None:
        """Score by the dataset's grader; None if there is no grader, or no score."""
        if self.verdict is None or not self.verdict.judged or not self.verdict.HasField("score"):
            return None
        return self.verdict.score

    @property
    def assumed_timeouts(self) -> int:
        """Tests that were stopped at the short limit, after too many time-outs, and counted as failed."""
        return 0 if self.verdict is None else self.verdict.assumed_timeouts

    @property
    def final_status(self) -> str:
        """Final status (docs/verdicts.md); `api_error` if it was not judged."""
        if self.verdict is None or not self.verdict.judged:
            return "api_error"
        return FINAL_STATUS_NAMES[self.verdict.final_status]

    @property
    def total_judge_time(self) -> float | None:
        """CPU seconds of the runs that decided, summed over the tests; a cached verdict counts its original's.

        CPU seconds because a busy sandbox stretches wall time (docs/outputs.md).
        """
        return None if self.verdict is None else sum(test.cpu_time for test in self.verdict.tests)


RESULT_SCHEMA_VERSION: Final = 1


def result_row(result: SampleResult) -> JsonObject:
    """Return the row of one result, in the order of the columns; plain values only.

    Prompt and ground truth stay in the data set, which (dataset, problem_id) names: with n samples a problem they
    would be written n times.
    """
    verdict = result.verdict or pb.Verdict()
    return {
        "dataset": result.dataset,
        "problem_id": result.problem_id,
        "sample": result.sample,
        "turn": result.turn,
        "repeat": result.repeat,
        "judged": result.judged,
        "accepted": result.accepted,
        "pass_ratio": result.pass_ratio,
        "pass_ratio_high": result.pass_ratio_high,
        "assumed_timeouts": result.assumed_timeouts,
        "score": result.score,
        "final_status": result.final_status,
        "not_judged_reason": result.not_judged_reason,
        "difficulty": result.difficulty,
        "data_source": result.data_source,
        "model": result.model,
        "mode": result.mode,
        "language": result.language,
        "response": result.response,
        "code": verdict.code,
        "extraction": EXTRACTION_NAMES.get(verdict.extraction),
        "guardrails": [GUARDRAIL_NAMES[guardrail] for guardrail in verdict.guardrails],
        "containment_level": verdict.containment_level,
        "forgeable": verdict.forgeable,
        "cached": verdict.cached,
        "disagreeing_comparators": list(verdict.disagreeing_comparators),
        "rests_on": list(verdict.rests_on),
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "output_tokens": result.output_tokens,
        "gen_time": result.gen_seconds,
        "total_judge_time": result.total_judge_time,
        "queue_time": verdict.queue_seconds if result.verdict is not None else None,
        "started_at": result.started_at,
        "judged_at": result.judged_at,
        "tests": [test_row(test) for test in verdict.tests],
    }


def test_row(test: pb.TestResult) -> JsonObject:
    """Return one test's record (docs/outputs.md). `*_length` is a text's full length in bytes; the text may be cut."""
    status = TEST_STATUS_NAMES[test.status]
    return {
        "case_index": test.case_index,
        "status": status,
        "verl_code": VERL_CODES[status],
        "ran": test.ran,
        "input": test.input.text,
        "input_length": test.input.full_length,
        "expected_output": test.expected_output.text,
        "expected_output_length": test.expected_output.full_length,
        "stdout": test.stdout.text,
        "stdout_length": test.stdout.full_length,
        "stderr": test.stderr.text,
        "stderr_length": test.stderr.full_length,
        "exit_code": test.exit_code if test.HasField("exit_code") else None,
        "duration": test.duration,
        "cpu_time": test.cpu_time,
        "compile_duration": test.compile_duration,
        "compile_stderr": test.compile_stderr.text,
        "compile_stderr_length": test.compile_stderr.full_length,
        "reason": test.reason,
        "disagreeing_comparators": list(test.disagreeing_comparators),
    }
