"""`/submit` on the wire: what we send and read, against the models of the PyPI package `sandbox-fusion`. No server."""

import json
from typing import Any

import pytest
import sandbox_fusion as sdk

from evalrun_judge.families.submit import decide_outcome, records_of_submission
from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError, SubmitCall, fusion_submit
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import BY_WALL

CALL = SubmitCall("code_contests", 7, "```python\nprint(3)\n```\n", "python", 30.0)
CASE = {"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}


def command(
    code: int | None = 0, *, status: str = "Finished", out: str = "", err: str = ""
) -> sdk.models.CommandRunResult:
    return sdk.models.CommandRunResult(
        status=sdk.models.CommandRunStatus(status), return_code=code, execution_time=0.5, stdout=out, stderr=err
    )


def ran(
    run: sdk.models.CommandRunResult | None, compiled: sdk.models.CommandRunResult | None = None,
    status: str = "Failed", message: str = "",
) -> sdk.RunCodeResponse:  # fmt: skip
    return sdk.RunCodeResponse(status=sdk.RunStatus(status), message=message, compile_result=compiled, run_result=run)


def good(info: sdk.RunCodeResponse, case: dict[str, Any] | None = None) -> sdk.models.EvalTestCase:
    return sdk.models.EvalTestCase(passed=True, exec_info=info, test_info=case)


def bad(info: sdk.RunCodeResponse, case: dict[str, Any] | None = None) -> sdk.models.EvalTestCase:
    return sdk.models.EvalTestCase(passed=False, exec_info=info, test_info=case)


def answered(*tests: sdk.models.EvalTestCase, accepted: bool = False, row: int | str = 7) -> bytes:
    said = sdk.EvalResult(id=row, accepted=accepted, extracted_code="print(3)", tests=list(tests))
    text: str = said.json()
    return text.encode()


def read(answer: bytes, *, all_cases: bool = False) -> Any:
    return fusion_submit.read(answer, CALL, all_cases=all_cases, level="none")


@pytest.mark.parametrize("row", [11, "HumanEval/0"])
@pytest.mark.parametrize("all_cases", [False, True])
@pytest.mark.parametrize("free_form", [False, True])
def test_model_of_the_package_accepts_the_submitted_body(row: int | str, all_cases: bool, free_form: bool) -> None:
    call = SubmitCall("mbpp", row, "é\n", "cpp", 2.5, free_form)
    sent = json.loads(fusion_submit.body(call, all_cases=all_cases))
    extra = {"is_freeform": free_form, "run_all_cases": all_cases}
    assert sent == {
        "dataset": "mbpp", "id": row, "completion": "é\n",
        "config": {
            "language": "cpp", "compile_timeout": 30.0, "run_timeout": 2.5,
            "extra": {name: True for name, value in extra.items() if value},
        },
    }  # fmt: skip
    taken = sdk.SubmitRequest.parse_obj(sent)
    assert (taken.dataset, taken.id, taken.completion) == ("mbpp", row, "é\n")
    config = taken.config
    assert (config.language, config.run_timeout, config.extra) == ("cpp", 2.5, sent["config"]["extra"])
    dangerous = (config.custom_extract_logic, config.provided_data, config.dataset_type, config.is_fewshot)
    assert dangerous == (None,) * 4
    assert json.loads(taken.json(exclude_unset=True)) == sent  # nothing is sent that the model does not know


def test_a_text_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(RunRefusedError, match="UTF-8"):
        fusion_submit.body(SubmitCall("mbpp", 1, "\ud800", "python", 1.0), all_cases=False)


SYNTAX = "  File \"/tmp/x.py\", line 3\n    return (\n           ^\nSyntaxError: '(' was never closed\n"
ASSERTION = 'Traceback (most recent call last):\n  File "x", line 4\nAssertionError: no\nsecond line\n'

STATUSES: dict[str, tuple[sdk.models.EvalTestCase, TestStatus, str]] = {
    "passed": (good(ran(command(out="3\n"), status="Success"), CASE), TestStatus.SUCCESS, ""),
    "assertions passed": (good(ran(command(), status="Success")), TestStatus.SUCCESS, ""),
    "other output": (bad(ran(command(out="4"), status="Success"), CASE), TestStatus.WRONG_ANSWER, ""),
    "exit code": (bad(ran(command(3)), CASE), TestStatus.RUNTIME_ERROR, "exit code 3"),
    "signal": (bad(ran(command(-11)), CASE), TestStatus.RUNTIME_ERROR, "ended by SIGSEGV"),
    "out of memory": (bad(ran(command(1, err="x\nMemoryError\n")), CASE), TestStatus.MEMORY_LIMIT, ""),
    "wall time": (
        bad(ran(command(None, status="TimeLimitExceeded")), CASE), TestStatus.TIMEOUT, BY_WALL,
    ),
    "Python refused the text": (bad(ran(command(1, err=SYNTAX)), CASE), TestStatus.COMPILE_ERROR, ""),
    "compiler": (bad(ran(None, command(1, err="bad")), CASE), TestStatus.COMPILE_ERROR, ""),
    "compiler too slow": (
        bad(ran(None, command(None, status="TimeLimitExceeded")), CASE), TestStatus.COMPILE_TIMEOUT, "",
    ),
    "assertion": (bad(ran(command(1, err=ASSERTION))), TestStatus.WRONG_ANSWER, "an assertion failed"),
    "the program's own assertion": (
        bad(ran(command(1, err=ASSERTION)), CASE), TestStatus.RUNTIME_ERROR, "exit code 1",
    ),
    "no program": (
        bad(ran(None, status="Success"), CASE), TestStatus.WRONG_ANSWER,
        "the server ran nothing: it found no program",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATUSES)
def test_decide_outcome_maps_each_status_of_the_server(name: str) -> None:
    case, status, reason = STATUSES[name]
    [test] = read(answered(case, accepted=case.passed)).tests
    outcome = decide_outcome(test)
    assert (outcome.status, outcome.reason) == (status, reason)


NOTHING_KNOWN: dict[str, bytes] = {
    "the sandbox failed": answered(bad(ran(None, status="SandboxError", message="Traceback:\n  /x"))),
    "its command failed": answered(bad(ran(command(None, status="Error", err="no bash")))),
    "no result": answered(bad(ran(None))),
    "no exit code": answered(bad(ran(command(None)))),
    "accepted, and a test failed": answered(bad(ran(command(1))), accepted=True),
    "not accepted, and every test passed": answered(good(ran(command(), status="Success"))),
    "submit_safe's way to say that it failed": answered(),
    "another row": answered(good(ran(command(), status="Success")), accepted=True, row=8),
    "no JSON": b"<html>",
    "nested too deeply": b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not its type": b'{"id": 7, "accepted": "yes", "extracted_code": "", "tests": []}',
}


@pytest.mark.parametrize("name", NOTHING_KNOWN)
def test_answer_without_a_result_raises_sandbox_failed(name: str) -> None:
    with pytest.raises(SandboxFailedError) as error:
        read(NOTHING_KNOWN[name])
    assert "\n" not in str(error.value)


def test_a_row_without_tests_accepts_anything_and_is_refused() -> None:
    with pytest.raises(RunRefusedError, match="the row has no tests"):
        read(answered(accepted=True))


def test_a_toolchain_that_is_missing_is_no_compile_error() -> None:
    with pytest.raises(RunRefusedError, match="no compiler"):
        read(answered(bad(ran(None, command(127)))))


def test_answer_gives_texts_times_and_completeness() -> None:
    passed = good(ran(command(out="3\n"), status="Success"), CASE)
    failed = bad(ran(command(out="4\n", err="hm"), status="Success"), CASE)
    reply = read(answered(passed, failed))
    assert (reply.code, reply.accepted, reply.complete, reply.level) == ("print(3)", False, False, "none")
    record = records_of_submission(reply)[1]
    assert (record.case_index, record.ran, record.exit_code, record.duration) == (1, True, 0, 0.5)
    texts = (record.input, record.expected_output, record.stdout, record.stderr)
    assert [text.text for text in texts] == ["1 2\n", "3\n", "4\n", "hm"]
    assert read(answered(passed, failed), all_cases=True).complete
    assert read(answered(passed, accepted=True)).complete
    assert read(answered(bad(ran(command(1, err=ASSERTION))))).complete  # assertions are one test


@pytest.mark.parametrize(
    ("status", "detail", "said"),
    [
        (404, "dataset mbpp has no row '9'", "dataset mbpp has no row '9'"),
        (500, "'NoneType' object is not iterable", "the server has no such row"),
        (500, "failed to request database with query SELECT 1: 'NoneType' object has no attribute 'fetch_one'",
         "the server lists this dataset and has no rows of it"),
        (500, "failed to request sandbox: Sanbox responded with error: x", None),
        (500, "'labels'", None),
    ],
)  # fmt: skip
def test_refusal_of_the_server_is_explained_and_other_errors_are_not(
    status: int, detail: str, said: str | None
) -> None:
    answer = json.dumps({"detail": detail, "traceback": ["secret path"]}).encode()
    refused = fusion_submit.refusal(status, answer, CALL)
    assert (refused is None) == (said is None)
    if refused is not None:
        assert str(refused) == f"dataset 'code_contests', id 7: {said}"
