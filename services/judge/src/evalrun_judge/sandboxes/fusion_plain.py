"""Encodes a `/run_code` call per test, for servers on which the batch harness cannot run, and reads its reply. Pure.

Only the server's own report is available: its time limit is wall time, its status the program's exit code, and its
output may be cut. Output that may have been cut is refused rather than compared.
"""

from typing import Any

from evalrun_executor.api import CompileResult, ProgramRun, RunRequest
from evalrun_executor.harness import CALL_HARNESS
from evalrun_judge.function_tests import programs as function_programs
from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError
from evalrun_judge.sandboxes.fusion_http import CodeAnswer, Command
from evalrun_judge.sandboxes.sandbox_fusion_texts import says_not_decoded
from evalrun_registry.languages import LANGUAGES

WHOLE_BYTES = 128 * 1024
"""Bytes of stdout, and of stderr, that every stock server returns whole. Above, it is cut at 219264 bytes with status
Success, or the program blocks and is timed out (measured: uvloop from 262144 on, asyncio from 160000 on)."""

COMPILE_SECONDS = 30.0
STOCK_LANGUAGES = {
    name: language.fusion.name
    for name, language in LANGUAGES.items()
    if language.fusion is not None and language.fusion.is_stock
}
"""SandboxFusion's name of each language that every stock server runs."""


def body(request: RunRequest, index: int) -> dict[str, Any]:
    """Return the call for an input. Raises RunRefusedError if JSON texts cannot represent it."""
    code = function_programs.program(CALL_HARNESS, request.code) if request.mode == "calls" else request.code
    try:
        code.encode()
        stdin = request.inputs[index].decode()
    except UnicodeError as error:
        raise RunRefusedError(f"this server takes UTF-8 only: {error}") from error
    return {
        "language": STOCK_LANGUAGES[request.language],
        "code": code,
        "stdin": stdin,
        "compile_timeout": COMPILE_SECONDS,
        "run_timeout": request.limits.time_seconds,
        "memory_limit_MB": request.limits.memory_mib,
    }


def read_compile_result(answer: CodeAnswer, language: str) -> CompileResult:
    """Return the compile result. Python's syntax errors count as runs, and are recognized by their text."""
    part = answer.compile_result
    if part is None:
        run = answer.run_result
        if language == "python" and run is not None and _is_syntax_error(run):
            return CompileResult("error", stderr=(run.stderr or "").encode())
        return CompileResult("ok")
    seconds = part.execution_time or 0.0
    text = (part.stderr or "").encode()
    if part.status == "TimeLimitExceeded":
        return CompileResult("timeout", seconds, text)
    if part.return_code == 127:
        raise RunRefusedError(f"the server has no compiler for {language}")
    return CompileResult("ok" if part.return_code == 0 else "error", seconds, text)


def _is_syntax_error(run: Command) -> bool:
    """Return whether Python refused the text: no frame is named, because nothing has run."""
    text = run.stderr or ""
    last = text.rstrip().rpartition("\n")[2]
    refused = last.startswith(("SyntaxError:", "IndentationError:", "TabError:"))
    return run.return_code == 1 and refused and not text.startswith("Traceback")


def run(answer: CodeAnswer, request: RunRequest) -> ProgramRun:
    """Return the run of an input.

    Raises:
        SandboxFailedError: nothing ran.
        RunRefusedError: the output may have been cut.
    """
    part = answer.run_result
    if part is None:
        raise SandboxFailedError("the server answered without a result")
    stdout, stderr = (part.stdout or "").encode(), (part.stderr or "").encode()
    cap = request.limits.output_kib * 1024
    if len(stdout) > cap or len(stderr) > cap:
        return ProgramRun("output_limit", None, stdout[:cap], stderr[:cap], 0.0, part.execution_time or 0.0)
    if max(len(stdout), len(stderr)) > WHOLE_BYTES or (part.status != "Finished" and len(stdout) >= 1 << 16):
        raise RunRefusedError(f"the program printed {len(stdout)} bytes, which this server may have cut")
    if part.status == "Finished" and part.return_code is None:
        raise SandboxFailedError("the server does not say how the program ended")
    wall = part.execution_time or 0.0
    if part.status == "TimeLimitExceeded":
        return ProgramRun("timeout", None, stdout, stderr, wall, wall, confirmed=False, measured=False)
    if says_not_decoded(stdout):
        raise RunRefusedError("the program printed what is not UTF-8, which this server does not return")
    return ProgramRun("exited", part.return_code, stdout, stderr, 0.0, wall)
