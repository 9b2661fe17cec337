"""Verdicts as messages: nothing is lost, and what is not there is absent and not merely empty."""

import pytest
from builders.judge.gateway import message_of

from evalrun_judge.extraction import Extraction, ExtractionMethod, Guardrail
from evalrun_judge.rpc.messages import fill_verdict
from evalrun_judge.status import ForgeableCause, TestStatus
from evalrun_judge.verdict import CutText, TestRecord, Verdict, make_verdict
from evalrun_proto.judge.v1 import judge_pb2

FULL = TestRecord(
    case_index=1,
    status=TestStatus.WRONG_ANSWER,
    ran=True,
    input=CutText("in", 20),
    expected_output=CutText("wanted", 60),
    stdout=CutText("out", 30),
    stderr=CutText("err", 31),
    exit_code=0,
    duration=1.5,
    cpu_time=0.5,
    compile_duration=0.25,
    compile_stderr=CutText("warning", 70),
    reason="why \ud800",
    disagreeing=("tokens", "standard"),
)
BARE = TestRecord(0, TestStatus.COMPILE_ERROR, ran=False)
TEXTS = ("input", "expected_output", "stdout", "stderr", "compile_stderr")


def verdict_of(*records: TestRecord, code: str = "print(1)") -> Verdict:
    extraction = Extraction(code, ExtractionMethod.TAGGED_BLOCK, (Guardrail.ANSWER_CUT,))
    return make_verdict(records, extraction, "seccomp", 2.5, cached=True, forgeable=ForgeableCause.SHARED_PROCESS)


def test_a_full_record_keeps_every_field() -> None:
    (message,) = message_of(verdict_of(FULL)).tests
    for name in TEXTS:
        kept, text = getattr(FULL, name), getattr(message, name)
        assert (text.text, text.full_length) == (kept.text, kept.full_length)
    assert message == judge_pb2.TestResult(
        case_index=1, status=judge_pb2.TEST_STATUS_WRONG_ANSWER, ran=True, exit_code=0, duration=1.5, cpu_time=0.5,
        compile_duration=0.25, reason="why \ufffd", disagreeing_comparators=["tokens", "standard"], input=message.input,
        expected_output=message.expected_output, stdout=message.stdout, stderr=message.stderr,
        compile_stderr=message.compile_stderr,
    )  # fmt: skip
    assert message.HasField("exit_code")


def test_missing_fields_of_a_record_are_absent_from_the_message() -> None:
    (message,) = message_of(verdict_of(BARE)).tests
    assert message == judge_pb2.TestResult(status=judge_pb2.TEST_STATUS_COMPILE_ERROR)
    assert not message.HasField("exit_code")
    assert {field.name for field, _ in message.ListFields()} == {"status"}


@pytest.mark.parametrize(
    ("records", "ratio"), [((FULL,), 0.0), ((TestRecord(0, TestStatus.API_ERROR, ran=True), FULL), None)]
)
def test_a_verdict_keeps_every_field(records: tuple[TestRecord, ...], ratio: float | None) -> None:
    response = judge_pb2.JudgeStreamResponse(request_id="7")
    verdict = verdict_of(*records, code="'\ud800'")
    fill_verdict(response.verdict, verdict)
    message = response.verdict
    assert (message.pass_ratio if message.HasField("pass_ratio") else None) == ratio
    assert len(message.tests) == len(records)
    assert response.WhichOneof("result") == "verdict"
    assert message.guardrails == [judge_pb2.GUARDRAIL_ANSWER_CUT]
    wanted = judge_pb2.Verdict(
        final_status=judge_pb2.FINAL_STATUS_WRONG_ANSWER, judged=True, pass_ratio=ratio, pass_ratio_high=ratio,
        tests=message.tests, code="'\ufffd'",
        extraction=judge_pb2.EXTRACTION_METHOD_TAGGED_BLOCK, guardrails=message.guardrails,
        containment_level="seccomp", forgeable=True, forgeable_cause="shared_process", cached=True, queue_seconds=2.5,
        disagreeing_comparators=verdict.disagreeing,
    )  # fmt: skip
    assert message == wanted
