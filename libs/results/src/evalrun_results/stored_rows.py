"""Reads a row of `results.jsonl` or `results.parquet` back into a result, the reverse of `result_row`.

Prompt and ground truth are not in the row and stay empty. Pure.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from evalrun_data.rows import Row
from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.samples import EXTRACTION_NAMES, FINAL_STATUS_NAMES, GUARDRAIL_NAMES, SampleResult
from evalrun_results.samples import TEST_STATUS_NAMES as TEST_STATUSES

N = TypeVar("N")
"""A value of a proto enumeration."""

TOTALS_COLUMNS: Final = (
    "dataset", "problem_id", "sample", "turn", "repeat", "judged", "accepted", "pass_ratio", "pass_ratio_high",
    "assumed_timeouts", "score", "final_status", "not_judged_reason", "difficulty", "data_source", "forgeable",
    "forgeable_cause", "cached", "rests_on",
    "finish_reason", "output_tokens", "gen_time", "total_judge_time", "started_at", "judged_at",
    "guardrails", "extraction", "tests.list.element.status", "tests.list.element.cpu_time",
)  # fmt: skip
"""Columns that totals by problem need: a Parquet file's texts, nearly all of it, stay unread."""

_TEST_STATUSES = {name: number for number, name in TEST_STATUSES.items()}
_FINAL_STATUSES = {name: number for number, name in FINAL_STATUS_NAMES.items()}
_EXTRACTIONS = {name: number for number, name in EXTRACTION_NAMES.items()}
_GUARDRAILS = {name: number for number, name in GUARDRAIL_NAMES.items()}


def parse_result(row: Row) -> SampleResult:
    """Return the result of a row.

    Raises:
        BadInputError: a field is missing or invalid; the message names file, row and field.
    """
    return SampleResult(
        dataset=row.name("dataset"),
        problem_id=row.text("problem_id"),
        sample=row.optional_count("sample") or 0,
        turn=row.optional_count("turn") or 0,
        repeat=row.optional_count("repeat") or 0,
        prompt="",
        response=row.optional_text("response"),
        ground_truth={},
        difficulty=row.optional_text("difficulty"),
        model=row.optional_text("model"),
        finish_reason=row.optional_text("finish_reason"),
        prompt_tokens=row.optional_count("prompt_tokens"),
        output_tokens=row.optional_count("output_tokens"),
        gen_seconds=row.optional_number("gen_time"),
        started_at=row.optional_number("started_at"),
        judged_at=row.optional_number("judged_at"),
        verdict=_verdict(row) if row.has("total_judge_time") else None,
        not_judged_reason=row.optional_text("not_judged_reason"),
        mode=row.optional_text("mode"),
        language=row.optional_text("language"),
        data_source=row.optional_text("data_source"),
    )


def _verdict(row: Row) -> pb.Verdict:
    """Return the verdict. In a row without a verdict the judge time is absent, not 0."""
    verdict = pb.Verdict(
        final_status=_find_number(row, "final_status", _FINAL_STATUSES),
        judged=bool(row.optional_flag("judged")),
        accepted=bool(row.optional_flag("accepted")),
        tests=[_test(row, index, test) for index, test in enumerate(_list(row, "tests"))],
        code=row.optional_text("code"),
        extraction=_EXTRACTIONS.get(row.optional_text("extraction"), pb.EXTRACTION_METHOD_UNSPECIFIED),
        guardrails=[_GUARDRAILS[name] for name in _list(row, "guardrails") if name in _GUARDRAILS],
        containment_level=row.optional_text("containment_level"),
        forgeable=bool(row.optional_flag("forgeable")),
        forgeable_cause=row.optional_text("forgeable_cause"),
        cached=bool(row.optional_flag("cached")),
        disagreeing_comparators=[str(name) for name in _list(row, "disagreeing_comparators")],
        rests_on=[str(name) for name in _list(row, "rests_on")],
        queue_seconds=row.optional_number("queue_time") or 0.0,
    )
    if (pass_ratio := row.optional_number("pass_ratio")) is not None:
        verdict.pass_ratio = pass_ratio
        verdict.pass_ratio_high = row.optional_number("pass_ratio_high") or pass_ratio
        verdict.assumed_timeouts = row.optional_count("assumed_timeouts") or 0
    # The score may be below 0.
    score = row.values.get("score")
    if isinstance(score, int | float) and not isinstance(score, bool):
        verdict.score = score
    return verdict


def _test(row: Row, index: int, value: object) -> pb.TestResult:
    if not isinstance(value, dict):
        raise row.wrong(f"tests[{index}]", "an object")
    test = row.make_inner_row(f"tests[{index}]", value)
    result = pb.TestResult(
        case_index=test.optional_count("case_index") or 0,
        status=_find_number(test, "status", _TEST_STATUSES),
        ran=bool(test.optional_flag("ran")),
        duration=test.optional_number("duration") or 0.0,
        cpu_time=test.optional_number("cpu_time") or 0.0,
        compile_duration=test.optional_number("compile_duration") or 0.0,
        reason=test.optional_text("reason"),
        disagreeing_comparators=[str(name) for name in _list(test, "disagreeing_comparators")],
    )
    for field in ("input", "expected_output", "stdout", "stderr", "compile_stderr"):
        if test.has(field):
            text: pb.CutText = getattr(result, field)
            text.text = test.text(field)
            text.full_length = test.optional_count(f"{field}_length") or len(text.text.encode())
    if isinstance(code := test.values.get("exit_code"), int):
        result.exit_code = code
    return result


def _list(row: Row, field: str) -> list[object]:
    value = row.values.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise row.wrong(field, "a list")
    return value


def _find_number(row: Row, field: str, known: Mapping[str, N]) -> N:
    name = row.text(field)
    if name not in known:
        raise row.error(f"field '{row.path}{field}' is {name!r}: known are {', '.join(known)}")
    return known[name]
