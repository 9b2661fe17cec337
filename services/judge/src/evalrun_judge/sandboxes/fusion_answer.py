"""Reads the result of a call of `fusion_batch`. Pure."""

import base64
import binascii
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from evalrun_executor.api import CompileResult, ProgramRun, RunRequest
from evalrun_executor.contained import frames
from evalrun_executor.contained.limits import resident_limit_mib
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.zygotes.frame_reader import MAX_TEXT, RunRules, parse_compiled, parse_run
from evalrun_judge.sandboxes.fusion_batch import Part
from evalrun_judge.sandboxes.fusion_bundle import OTHER_INTERPRETER
from evalrun_judge.sandboxes.fusion_http import CodeAnswer
from evalrun_judge.sandboxes.stock_harness import ENDED, HELLO, RESULT, STATUS
from evalrun_registry.languages import LANGUAGES

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}


class NotTheHarnessError(Exception):
    """The reply was not written by the harness, or is incomplete."""


class OtherInterpreterError(NotTheHarnessError):
    """The server's interpreter differs from the interpreter that compiled the harness."""


@dataclass(slots=True)
class BatchAnswer:
    """The reply to a call."""

    hello: dict[str, str] = field(default_factory=dict)
    compiled: CompileResult | None = None
    runs: dict[int, ProgramRun] = field(default_factory=dict)
    """Runs by the index of the request's inputs."""


def read(result: bytes, part: Part) -> BatchAnswer:
    """Read the harness's reply to a part.

    Raises:
        NotTheHarnessError: the reply is not signed with the nonce, incomplete, or malformed.
    """
    if not result.startswith(part.nonce):
        raise NotTheHarnessError("the answer is not signed with the request's nonce")
    answer = BatchAnswer()
    try:
        _read_frames(memoryview(result)[len(part.nonce) :], answer, part.request, part.indices)
    except ExecutorLost as error:
        raise NotTheHarnessError(str(error)) from error
    return answer


def _read_frames(left: memoryview, answer: BatchAnswer, request: RunRequest, indices: Sequence[int]) -> None:
    rules: RunRules | None = None
    limits = request.limits
    done = False
    while len(left) >= frames.FRAME.size:
        name, length = frames.FRAME.unpack_from(left)
        payload = bytes(left[frames.FRAME.size : frames.FRAME.size + length])
        if len(payload) != length:
            raise ExecutorLost("the answer breaks off")
        left = left[frames.FRAME.size + length :]
        match name:
            case _ if name == HELLO:
                answer.hello = dict(line.split("=", 1) for line in payload.decode("ascii", "replace").splitlines())
                rules = RunRules(
                    len(indices), limits.output_kib * 1024, limits.time_seconds, limits.memory_mib,
                    resident_limit_mib(limits.memory_mib, LANGUAGES[request.language].footprint.resident_mib),
                    answer.hello.get("filter") != "1",
                )  # fmt: skip
            case frames.COMPILED:
                answer.compiled = parse_compiled(payload)
            case frames.RUN if rules is not None:
                index, run = parse_run(payload, rules)
                answer.runs[indices[index]] = run
            case _ if name == ENDED:
                answer.compiled = _infer_compile_result(STATUS.unpack(payload)[0], answer)
            case frames.FAULT:
                raise ExecutorLost(payload[:MAX_TEXT].decode(errors="replace"))
            case frames.BINARY | frames.COMPILING | frames.HELD_UP:
                # The descriptor went to the harness. Nobody there reads how long the compiler waited for a CPU.
                pass
            case frames.DONE:
                done = not left
            case _:
                raise ExecutorLost(f"a harness sent a frame of type {name}")
    if left or not done or not answer.hello:
        raise ExecutorLost("the answer breaks off")


def _infer_compile_result(status: int, answer: BatchAnswer) -> CompileResult | None:
    """Return the compile result from a runner's end, because a program's text may kill the compiler. Raises
    ExecutorLost."""
    code = _exit_code(status)
    if code == 0:
        return answer.compiled
    # Another runner may have reported the same before.
    if answer.compiled is None or answer.compiled.status != "ok":
        if -code == signal.SIGXCPU:
            return CompileResult("timeout", stderr=b"the interpreter took too long to compile the program\n")
        if -code in _CRASHES:
            return CompileResult("error", stderr=b"the program crashes the interpreter's compiler\n")
    raise ExecutorLost(f"a runner ended with {code}")


def _exit_code(status: int) -> int:
    """Return `os.waitstatus_to_exitcode` for any number, also invalid statuses."""
    return -(status & 0x7F) if status & 0x7F else (status >> 8) & 0xFF


def result(answer: CodeAnswer, number: int, part: Part) -> BatchAnswer | None:
    """Read the result of a program of the call, or None if it did not run. Raises NotTheHarnessError."""
    content = file(answer, f"{RESULT}{number}")
    if content is None or (number == 0 and not content):
        raise make_no_result_error(answer)
    return read(content, part) if content else None


def file(answer: CodeAnswer, name: str) -> bytes | None:
    """Return a file of the reply; None if it is missing. Raises NotTheHarnessError."""
    content = answer.files.get(name)
    try:
        return None if content is None else base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise NotTheHarnessError(f"its {name} is no base64: {error}") from error


def make_no_result_error(answer: CodeAnswer) -> NotTheHarnessError:
    """Return the error of a call without a result."""
    run = answer.run_result
    why = "no result" if run is None else f"{run.status}, {(run.stderr or '').strip()[-300:]}"
    kind = OtherInterpreterError if run is not None and run.return_code == OTHER_INTERPRETER else NotTheHarnessError
    return kind(f"the harness gave no result: {why}")
