"""Encodes a call of SandboxFusion's `/submit` as JSON, and decodes the reply. Pure.

The body is typed field by field: no input of a caller can become `custom_extract_logic` (which the server runs in its
own process), `provided_data` (which it may unpickle), `dataset_type` (with which it may never call the tests) or
another key of `extra`.
"""

from typing import Any

import msgspec

from evalrun_executor.api import CompileResult, Level, ProgramRun
from evalrun_judge.sandboxes import (
    RunRefusedError,
    SandboxFailedError,
    ServerTest,
    SubmitCall,
    SubmitReply,
    fusion_plain,
)
from evalrun_judge.sandboxes.fusion_http import CodeAnswer, error_detail, start_of
from evalrun_judge.sandboxes.sandbox_fusion_texts import says_no_rows, says_no_such_row


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """The two switches of `config.extra` that are sent."""

    is_freeform: bool = False
    """HumanEval: the completion is a whole program."""
    run_all_cases: bool = False
    """CommonOJ: continue after a failed case."""


class Config(msgspec.Struct, frozen=True):
    """The fields of `TestConfig` that are sent."""

    language: str
    compile_timeout: float
    run_timeout: float
    extra: Extra


class SubmitBody(msgspec.Struct, frozen=True):
    """`SubmitRequest`."""

    dataset: str
    id: int | str
    completion: str
    config: Config


class EvalCase(msgspec.Struct, frozen=True):
    """`EvalTestCase`."""

    passed: bool
    exec_info: CodeAnswer
    test_info: dict[str, Any] | None = None


class EvalAnswer(msgspec.Struct, frozen=True):
    """The fields of `EvalResult` that are read."""

    id: int | str
    accepted: bool
    extracted_code: str
    tests: list[EvalCase]


def body(call: SubmitCall, *, all_cases: bool) -> bytes:
    """Return the call's body. Raises RunRefusedError where JSON cannot hold the text."""
    extra = Extra(is_freeform=call.free_form, run_all_cases=all_cases)
    config = Config(call.language, fusion_plain.COMPILE_SECONDS, call.time_seconds, extra)
    try:
        return msgspec.json.encode(SubmitBody(call.dataset, call.row, call.completion, config))
    except UnicodeEncodeError as error:
        raise RunRefusedError(f"this server takes UTF-8 only: {error}") from error


def refusal(status: int, answer: bytes, call: SubmitCall) -> RunRefusedError | None:
    """Return the error if the status means that the server will never judge this call, else None."""
    detail = error_detail(answer)
    row = f"dataset {call.dataset!r}, id {call.row!r}"
    if status == 404:
        return RunRefusedError(f"{row}: {detail}")
    if status == 500 and says_no_such_row(detail):
        return RunRefusedError(f"{row}: the server has no such row")
    if status == 500 and says_no_rows(detail):
        return RunRefusedError(f"{row}: the server lists this dataset and has no rows of it")
    return None


def read(answer: bytes, call: SubmitCall, *, all_cases: bool, level: Level) -> SubmitReply:
    """Read a reply with status 200.

    Args:
        answer: body of the reply.
        call: the call.
        all_cases: whether every case was to be run.
        level: containment level of the program.

    Raises:
        SandboxFailedError: the reply shows nothing about the program, or contradicts itself.
        RunRefusedError: there are no tests, so that the server accepts anything.
    """
    try:
        said = msgspec.json.decode(answer, type=EvalAnswer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SandboxFailedError(f"no answer of /submit: {error}") from error
    if str(said.id) != str(call.row):
        raise SandboxFailedError(f"an answer to row {said.id!r}, which was not asked")
    if not said.tests:
        if said.accepted:
            raise RunRefusedError(f"dataset {call.dataset!r}, id {call.row!r}: the row has no tests")
        raise SandboxFailedError("an answer without a test")
    if said.accepted != all(case.passed for case in said.tests):
        raise SandboxFailedError("an answer that contradicts its own tests")
    tests = tuple(_test(case, call.language) for case in said.tests)
    whole = said.accepted or all_cases or (len(tests) == 1 and tests[0].case is None)
    return SubmitReply(said.extracted_code, tests, whole, level)


def _test(case: EvalCase, language: str) -> ServerTest:
    info = case.exec_info
    for part in (info.compile_result, info.run_result):
        if part is not None and part.status == "Error":
            raise SandboxFailedError(f"SandboxError: {start_of(part.stderr or '')}")
    if info.status == "SandboxError":
        raise SandboxFailedError(f"SandboxError: {start_of(info.message)}")
    texts = None if case.test_info is None else (_text(case, "input", "stdin"), _text(case, "output", "stdout"))
    if case.passed:
        compiled = (
            CompileResult("ok") if info.compile_result is None else fusion_plain.read_compile_result(info, language)
        )
    else:
        compiled = fusion_plain.read_compile_result(info, language)
    return ServerTest(case.passed, compiled, _run(info, case.passed, compiled), texts)


def _run(info: CodeAnswer, passed: bool, compiled: CompileResult) -> ProgramRun | None:
    part = info.run_result
    if part is None:
        if compiled.status == "ok" and not passed and info.status != "Success":
            raise SandboxFailedError("a test that failed without having run")
        # The server does not run an empty program, and reports Success.
        return None
    stdout, stderr = (part.stdout or "").encode(), (part.stderr or "").encode()
    wall = part.execution_time or 0.0
    if part.status == "TimeLimitExceeded":
        return ProgramRun("timeout", None, stdout, stderr, 0.0, wall, confirmed=False, measured=False)
    if part.return_code is None:
        raise SandboxFailedError("the server does not say how the program ended")
    return ProgramRun("exited", part.return_code, stdout, stderr, 0.0, wall)


def _text(case: EvalCase, side: str, stream: str) -> bytes:
    texts = (case.test_info or {}).get(side)
    text = texts.get(stream) if isinstance(texts, dict) else None
    return text.encode() if isinstance(text, str) else b""
