import json

import pytest
from builders.fusion.clients import OK, exited

from evalrun_executor.api import UNKNOWN_LANGUAGE, CompileResult, ProgramRun
from evalrun_sandbox.fusion.answer_body import pieces
from evalrun_sandbox.fusion.answers import answer_without_time, make_refusal, make_sandbox_error, response, text
from evalrun_sandbox.fusion.refusals import TryAgain

FINISHED, LATE = "Finished", "TimeLimitExceeded"
ERROR = CompileResult("error", 0.1, b"SyntaxError: invalid syntax\n")
NOTHING = ProgramRun("not_run")


@pytest.mark.parametrize(
    ("language", "compiled", "run", "status", "compile_result", "run_result"),
    [
        ("python", OK, exited(), "Success", None, (FINISHED, 0)),
        ("python", OK, exited(code=3), "Failed", None, (FINISHED, 3)),
        ("python", OK, exited(code=-11), "Failed", None, (FINISHED, -11)),
        ("python", OK, ProgramRun("timeout"), "Failed", None, (LATE, None)),
        ("python", OK, ProgramRun("memory_limit", stderr=b"x\nMemoryError\n"), "Failed", None, (FINISHED, 1)),
        ("cpp", OK, ProgramRun("memory_limit", stderr=b"'std::bad_alloc'"), "Failed", (FINISHED, 0), (FINISHED, -6)),
        ("cpp", OK, ProgramRun("memory_limit"), "Failed", (FINISHED, 0), (FINISHED, -9)),
        ("python", OK, ProgramRun("output_limit"), "Failed", None, (FINISHED, -25)),
        ("python", ERROR, NOTHING, "Failed", None, (FINISHED, 1)),
        ("python", CompileResult("timeout"), NOTHING, "Failed", None, (LATE, None)),
        ("cpp", OK, exited(), "Success", (FINISHED, 0), (FINISHED, 0)),
        ("cpp", ERROR, NOTHING, "Failed", (FINISHED, 1), None),
        ("cpp", CompileResult("timeout"), NOTHING, "Failed", (LATE, None), None),
    ],
)
def test_an_end_becomes_status_and_return_code(
    language: str, compiled: CompileResult, run: ProgramRun, status: str,
    compile_result: tuple[str, int | None] | None, run_result: tuple[str, int | None] | None,
) -> None:  # fmt: skip
    answer = response(language, compiled, run, "pod-3")
    found = [
        None if part is None else (part.status, part.return_code) for part in (answer.compile_result, answer.run_result)
    ]
    assert (answer.status, found) == (status, [compile_result, run_result])
    assert (answer.message, answer.files, answer.executor_pod_name) == ("", {}, "pod-3")


def test_syntax_error_is_in_the_stderr_of_the_run_result() -> None:
    answer = response("python", ERROR, NOTHING)
    assert answer.run_result is not None
    assert answer.run_result.stderr == "SyntaxError: invalid syntax\n"
    assert answer.compile_result is None


def test_timeout_keeps_the_output_so_far() -> None:
    answer = response("python", OK, ProgramRun("timeout", stdout=b"half", wall_seconds=12.5))
    assert answer.run_result is not None
    assert (answer.run_result.stdout, answer.run_result.execution_time) == ("half", 12.5)


def test_an_output_past_the_cap_is_named_not_cut_silently() -> None:
    answer = response("python", OK, ProgramRun("output_limit", stdout=b"x" * 10, stderr=b"mine"))
    assert answer.run_result is not None
    assert answer.run_result.stderr == "mine\nstopped by the sandbox: more output than it keeps\n"


def test_program_that_did_not_run_raises_try_again() -> None:
    with pytest.raises(TryAgain):
        response("python", OK, ProgramRun("not_run"))


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_time_out_has_the_stock_servers_shape_on_a_busy_machine_too(confirmed: bool) -> None:
    """An endless loop would be 504 for as long as the machine is busy: no client would ever have an answer."""
    answer = response("python", OK, ProgramRun("timeout", None, b"1\n", wall_seconds=25.0, confirmed=confirmed))
    assert answer.status == "Failed"
    assert answer.run_result is not None
    assert (answer.run_result.status, answer.run_result.return_code) == ("TimeLimitExceeded", None)
    assert (answer.run_result.stdout, answer.run_result.execution_time) == ("1\n", 25.0)


def test_zero_time_is_answered_as_expired_at_once() -> None:
    for language, compile_timeout, in_compiler in (("python", 0.0, False), ("cpp", 0.0, True), ("cpp", 5.0, False)):
        answer = answer_without_time(language, compile_timeout)
        results = (answer.compile_result, answer.run_result)
        late, absent = results if in_compiler else results[::-1]
        assert answer.status == "Failed"
        assert absent is None
        assert late is not None
        assert (late.status, late.return_code) == (LATE, None)


def test_text_that_is_not_utf_8_becomes_a_complaint() -> None:
    assert text("é".encode()) == "é"
    assert text(b"a\xff") == "[DecodeError] 'utf-8' codec can't decode byte 0xff in position 1: invalid start byte"


def test_refused_answer_has_a_cause_and_any_other_is_the_stock_servers() -> None:
    told = json.loads(b"".join(pieces(make_refusal(UNKNOWN_LANGUAGE, "no go here"), {})))
    stock = json.loads(b"".join(pieces(make_sandbox_error("no go here"), {})))
    assert told == {**stock, "cause": "unknown_language"}
    assert "cause" not in stock
