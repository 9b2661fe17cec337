"""Translates the executor's results into SandboxFusion's terms. Pure.

| what happened | compile_result | run_result | status |
|---|---|---|---|
| Python does not compile | null | Finished, rc 1, the SyntaxError on stderr | Failed |
| Python takes too long to compile | null | TimeLimitExceeded, rc null | Failed |
| C or C++ does not compile | Finished, rc 1 | null | Failed |
| compiling takes too long | TimeLimitExceeded, rc null | null | Failed |
| ended by itself | | Finished, rc | Success where rc is 0, else Failed |
| ended by a signal | | Finished, rc = -signal | Failed |
| time limit | | TimeLimitExceeded, rc null, what it printed | Failed |
| memory limit | | Finished, rc 1 after a MemoryError, -6 after a bad_alloc, else -9 | Failed |
| stopped by the wall clock, the machine too busy to tell | | the same, as in a stock server | Failed |
| output past 64 MiB | | Finished, rc -25 (SIGXFSZ), the reason on stderr | Failed |
| fetched files past 64 MiB | | the same | Failed |
"""

import signal
from collections.abc import Mapping

from evalrun_executor.api import CompileResult, ProgramRun, RunReply
from evalrun_executor.private_files import ReplyWithFiles
from evalrun_registry.languages import LANGUAGES
from evalrun_sandbox.fusion.files import TOO_LARGE, Files
from evalrun_sandbox.fusion.refusals import TryAgain
from evalrun_sandbox.fusion.schemas import (
    CommandRunResult,
    CommandRunStatus,
    RefusedRunCodeResponse,
    RunCodeResponse,
    RunStatus,
)


def response(language: str, compiled: CompileResult, run: ProgramRun, pod_name: str | None = None) -> RunCodeResponse:
    """Return the response for a run. Raises TryAgain if the program did not run."""
    compile_result: CommandRunResult | None = None
    run_result: CommandRunResult | None = None
    if LANGUAGES[language].is_compiled:
        compile_result = _describe_compilation(compiled)
    elif compiled.status != "ok":
        run_result = _describe_compilation(compiled)
    if compiled.status == "ok":
        run_result = _describe_run(run)
    status = _choose_status([result for result in (compile_result, run_result) if result is not None])
    return RunCodeResponse(
        status=status, compile_result=compile_result, run_result=run_result, executor_pod_name=pod_name
    )


def answer_without_time(language: str, compile_timeout: float, pod_name: str | None = None) -> RunCodeResponse:
    """Return the answer to a request without any time to compile or run: an immediate timeout, as in the stock
    server.

    Args:
        language: the request's language.
        compile_timeout: in seconds. If positive, the program, not the compiler, is reported as timed out.
        pod_name: name of this sandbox's pod.
    """
    late = CommandRunResult(
        status=CommandRunStatus.TIME_LIMIT_EXCEEDED, execution_time=0.0, stdout="", stderr=""
    )  # fmt: skip
    in_compiler = LANGUAGES[language].is_compiled and not compile_timeout > 0
    return RunCodeResponse(
        status=RunStatus.FAILED,
        compile_result=late if in_compiler else None,
        run_result=None if in_compiler else late,
        executor_pod_name=pod_name,
    )


Answer = tuple[RunCodeResponse, Mapping[str, bytes]]
"""The reply without files, and its files."""


def add_files(answer: RunCodeResponse, files: Files, reply: RunReply | None) -> Answer:
    """Return a reply with the files that its request fetches.

    Args:
        answer: the reply without files.
        files: the request's files.
        reply: the executor's reply, or None if nothing ran. If nothing ran or compiled, the directory holds only the
            placed files.
    """
    found: Mapping[str, bytes] | None = files.placed
    if isinstance(reply, ReplyWithFiles) and reply.compile.status == "ok":
        found = reply.files
    if found is not None:
        return answer, files.select_fetched(found)
    run = answer.run_result
    if run is None or run.status != CommandRunStatus.FINISHED:
        return answer, {}
    over = {"return_code": -signal.SIGXFSZ, "stderr": (run.stderr or "") + TOO_LARGE}
    return answer.model_copy(update={"status": RunStatus.FAILED, "run_result": run.model_copy(update=over)}), {}


def make_sandbox_error(message: str, pod_name: str | None = None) -> RunCodeResponse:
    """Return the answer for a request that was not run."""
    return RunCodeResponse(status=RunStatus.SANDBOX_ERROR, message=message, executor_pod_name=pod_name)


def make_refusal(cause: str, message: str, pod_name: str | None = None) -> RunCodeResponse:
    """Return the answer for a request that this server will never run."""
    return RefusedRunCodeResponse(
        status=RunStatus.SANDBOX_ERROR, message=message, executor_pod_name=pod_name, cause=cause
    )


def text(data: bytes) -> str:
    """Decode a program's output; output that is not UTF-8 is replaced by an error text, as in the stock server."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return f"[DecodeError] {error}"


def _describe_compilation(compiled: CompileResult) -> CommandRunResult:
    late = compiled.status == "timeout"
    return CommandRunResult(
        status=CommandRunStatus.TIME_LIMIT_EXCEEDED if late else CommandRunStatus.FINISHED,
        execution_time=compiled.seconds,
        return_code=None if late else int(compiled.status == "error"),
        stdout="",
        stderr=text(compiled.stderr),
    )


def _describe_run(run: ProgramRun) -> CommandRunResult:
    if run.end == "not_run":
        raise TryAgain("the sandbox did not run the program: send it again")
    late = run.end == "timeout"
    code, remark = _choose_return_code(run)
    return CommandRunResult(
        status=CommandRunStatus.TIME_LIMIT_EXCEEDED if late else CommandRunStatus.FINISHED,
        execution_time=run.wall_seconds,
        return_code=code,
        stdout=text(run.stdout),
        stderr=text(run.stderr) + remark,
    )


def _choose_return_code(run: ProgramRun) -> tuple[int | None, str]:
    """Return the return code, and a text to append to the program's stderr."""
    if run.end == "output_limit":
        return -signal.SIGXFSZ, "\nstopped by the sandbox: more output than it keeps\n"
    if run.end == "memory_limit":
        if b"MemoryError" in run.stderr[-1000:]:
            return 1, ""
        if b"std::bad_alloc" in run.stderr:
            return -signal.SIGABRT, ""
        return -signal.SIGKILL, "\nstopped by the sandbox: memory limit\n"
    return (None if run.end == "timeout" else run.exit_code), ""


def _choose_status(results: list[CommandRunResult]) -> RunStatus:
    if any(result.status != CommandRunStatus.FINISHED or result.return_code != 0 for result in results):
        return RunStatus.FAILED
    return RunStatus.SUCCESS
