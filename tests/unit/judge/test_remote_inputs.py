"""In which form a request goes to a sandbox, by what is known of what that keeps."""

import msgspec
import pytest

from evalrun_executor.api import RunRequest, SandboxInfo, digest_inputs
from evalrun_judge.families.stdio import plan_stdio
from evalrun_judge.sandboxes.remote_inputs import MAX_KNOWN, WORTH_BYTES, SandboxInputs
from evalrun_judge.submission import JudgeRequest, StdioTest, StdioTests, Submission, extract_program

LARGE = [b"x" * (WORTH_BYTES // 2)] * 2
REQUEST = RunRequest("python", "pass", LARGE, inputs_digest=digest_inputs(LARGE))
PLAIN = msgspec.structs.replace(REQUEST, inputs_digest=b"")
BY_DIGEST = msgspec.structs.replace(REQUEST, inputs=[])


def knowing(keep_mib: int = 1) -> SandboxInputs:
    kept = SandboxInputs()
    kept.record_description(SandboxInfo("0.1", "full", 2, ["python"], "3.11", keep_mib=keep_mib))
    return kept


def small() -> RunRequest:
    inputs = [b"x" * (WORTH_BYTES - 1)]
    return RunRequest("python", "", inputs, inputs_digest=digest_inputs(inputs))


@pytest.mark.parametrize(
    ("kept", "request_", "digest"),
    [
        (knowing(), REQUEST, REQUEST.inputs_digest),
        (knowing(), PLAIN, b""),  # nobody gave them a name: they may never come again
        (knowing(), small(), b""),
        (knowing(0), REQUEST, b""),  # as an older sandbox says, which knows no digests
        (SandboxInputs(), REQUEST, b""),  # it has not said yet what it is
    ],
)
def test_inputs_that_a_sandbox_keeps_are_sent_with_their_digest(
    kept: SandboxInputs, request_: RunRequest, digest: bytes
) -> None:
    form = kept.form(request_)
    assert (form.inputs, form.inputs_digest) == (request_.inputs, digest)


def test_inputs_above_the_sandboxs_capacity_are_sent_without_a_digest() -> None:
    inputs = [b"x" * (1 << 20), b"x"]
    request = RunRequest("python", "", inputs, inputs_digest=digest_inputs(inputs))
    assert knowing().form(request).inputs_digest == b""
    assert knowing(2).form(request) == request


@pytest.mark.parametrize("status", [200, 429])
def test_inputs_that_arrived_are_sent_by_digest_alone(status: int) -> None:
    kept = knowing()
    assert kept.record_answer(kept.form(REQUEST), REQUEST, status) is None
    assert kept.form(REQUEST) == BY_DIGEST
    assert kept.form(msgspec.structs.replace(REQUEST, code="other")).inputs == []


# what was sent, what was answered, what is sent then
AFTER: list[tuple[RunRequest, int, RunRequest | None]] = [
    (BY_DIGEST, 200, None),
    (BY_DIGEST, 404, REQUEST),  # started again, another pod, or dropped
    (BY_DIGEST, 400, PLAIN),  # an older one may have taken its place
    (BY_DIGEST, 503, None),
    (REQUEST, 400, PLAIN),
    (REQUEST, 404, None),
    (PLAIN, 400, None),  # that is its answer
    (PLAIN, 404, None),
]


@pytest.mark.parametrize(("sent", "status", "again"), AFTER)
def test_record_answer_repeats_the_request_with_inputs_if_the_digest_is_unknown(
    sent: RunRequest, status: int, again: RunRequest | None
) -> None:
    assert knowing().record_answer(sent, REQUEST, status) == again


def test_inputs_that_the_sandbox_lacks_are_sent_whole_again() -> None:
    kept = knowing()
    kept.record_answer(REQUEST, REQUEST, 200)
    kept.record_answer(BY_DIGEST, REQUEST, 404)
    assert kept.form(REQUEST) == REQUEST


def test_oldest_digest_is_forgotten_beyond_the_limit() -> None:
    kept = knowing()
    kept.record_answer(REQUEST, REQUEST, 200)
    for number in range(MAX_KNOWN):
        other = msgspec.structs.replace(REQUEST, inputs_digest=number.to_bytes(32))
        kept.record_answer(other, other, 200)
    assert kept.form(REQUEST) == REQUEST


@pytest.mark.parametrize("named", [False, True])
def test_only_suites_that_callers_name_get_a_digest(named: bool) -> None:
    tests = StdioTests([StdioTest("1\ud800", "é"), StdioTest("", "2")], named=named)
    request = JudgeRequest(Submission("```python\npass\n```"), tests)
    plan = plan_stdio(request, tests, extract_program(request.submission))
    assert (plan.run.inputs, plan.expected) == ([b"1\xed\xa0\x80", b""], (b"\xc3\xa9", b"2"))
    assert plan.run.inputs_digest == (digest_inputs(plan.run.inputs) if named else b"")
