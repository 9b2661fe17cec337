"""The row for a result in `results.jsonl` and `results.parquet` (docs/outputs.md). Pure.

Rows are msgspec structs: made and encoded in half the time of dicts, and a run has a million of them.
"""

from typing import Final

import msgspec

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.json_text import json_line
from evalrun_results.samples import EXTRACTION_NAMES, GUARDRAIL_NAMES, TEST_STATUS_NAMES, SampleResult

RESULT_SCHEMA_VERSION: Final = 1

VERL_CODES: Final = {
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

LOG_PROB_DIGITS: Final = 6
"""Decimals of a log-probability: further digits of a 32-bit float would double the text."""

_NO_VERDICT: Final = pb.Verdict()
_ENCODER: Final = msgspec.json.Encoder()


class JudgedTest(msgspec.Struct, gc=False):
    """The record of a test. `*_length` is a text's full length in bytes; the text may be cut."""

    case_index: int
    status: str
    verl_code: int
    ran: bool
    input: str
    input_length: int
    expected_output: str
    expected_output_length: int
    stdout: str
    stdout_length: int
    stderr: str
    stderr_length: int
    exit_code: int | None
    duration: float
    cpu_time: float
    compile_duration: float
    compile_stderr: str
    compile_stderr_length: int
    reason: str
    disagreeing_comparators: list[str]


class ResultRow(msgspec.Struct, gc=False):
    """The columns, in their order.

    Prompt and ground truth stay in the dataset, which (dataset, problem_id) names: with n samples a problem they
    would be written n times.
    """

    dataset: str
    problem_id: str
    sample: int
    turn: int
    repeat: int
    judged: bool
    accepted: bool | None
    pass_ratio: float | None
    pass_ratio_high: float | None
    assumed_timeouts: int
    score: float | None
    final_status: str
    not_judged_reason: str
    difficulty: str
    tags: list[str]
    data_source: str
    model: str
    mode: str
    language: str
    response: str
    code: str
    extraction: str | None
    guardrails: list[str]
    containment_level: str
    forgeable: bool
    forgeable_cause: str
    cached: bool
    disagreeing_comparators: list[str]
    rests_on: list[str]
    finish_reason: str
    prompt_tokens: int | None
    output_tokens: int | None
    log_probs: list[float] | None
    gen_time: float | None
    total_judge_time: float | None
    queue_time: float | None
    started_at: float | None
    judged_at: float | None
    tests: list[JudgedTest]


def result_row(result: SampleResult) -> ResultRow:
    """Return the row of a result."""
    verdict = result.verdict or _NO_VERDICT
    # By name the call takes twice as long as by position.
    return ResultRow(
        result.dataset,
        result.problem_id,
        result.sample,
        result.turn,
        result.repeat,
        result.judged,
        result.accepted,
        result.pass_ratio,
        result.pass_ratio_high,
        result.assumed_timeouts,
        result.score,
        result.final_status,
        result.not_judged_reason,
        result.difficulty,
        list(result.tags),
        result.data_source,
        result.model,
        result.mode,
        result.language,
        result.response,
        verdict.code,
        EXTRACTION_NAMES.get(verdict.extraction),
        [GUARDRAIL_NAMES[guardrail] for guardrail in verdict.guardrails[:]],
        verdict.containment_level,
        verdict.forgeable,
        verdict.forgeable_cause,
        verdict.cached,
        verdict.disagreeing_comparators[:],
        verdict.rests_on[:],
        result.finish_reason,
        result.prompt_tokens,
        result.output_tokens,
        [round(value, LOG_PROB_DIGITS) for value in result.log_probs] or None,
        result.gen_seconds,
        result.total_judge_time,
        verdict.queue_seconds if result.verdict is not None else None,
        result.started_at,
        result.judged_at,
        [_test_row(test) for test in result.tests],
    )


def _test_row(test: pb.TestResult) -> JudgedTest:
    status = TEST_STATUS_NAMES[test.status]
    given, expected, printed, errors = test.input, test.expected_output, test.stdout, test.stderr
    compiler = test.compile_stderr
    return JudgedTest(
        test.case_index,
        status,
        VERL_CODES[status],
        test.ran,
        given.text,
        given.full_length,
        expected.text,
        expected.full_length,
        printed.text,
        printed.full_length,
        errors.text,
        errors.full_length,
        test.exit_code if test.HasField("exit_code") else None,
        test.duration,
        test.cpu_time,
        test.compile_duration,
        compiler.text,
        compiler.full_length,
        test.reason,
        # A copy by iteration takes ten times as long.
        test.disagreeing_comparators[:],
    )


def encode_row(row: ResultRow, line: bytearray) -> None:
    """Replace a buffer's content by the row as a line of JSON (`json_line`), with its newline.

    All rows share a buffer: a new buffer per row takes half of the encoding's time.
    """
    try:
        _ENCODER.encode_into(row, line)
    # The text contains a lone surrogate.
    except UnicodeEncodeError:
        line[:] = json_line(msgspec.to_builtins(row))
    line += b"\n"
