"""Function tests judged for tests: sessions driven by plain processes with limits, and by warm forks for speed."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from evalrun_judge.function_programs import assertion_program, program
from evalrun_judge.function_tests import (
    AssertTests,
    CheckTest,
    Finished,
    FunctionTestOutcome,
    FunctionTestSession,
    RunAssertions,
    RunCalls,
)
from evalrun_sandbox.api import CompileResult, ProgramRun

TIME_SECONDS = 10
MEMORY_BYTES = 1 << 30
OUTPUT_BYTES = 48 << 20
COMPILED = CompileResult("ok")

Execute = Callable[[str, bytes], ProgramRun]
"""Runs a stand-alone program text on an input."""


def compile_result(code: str) -> CompileResult:
    """What the sandbox says about the program before it runs it."""
    try:
        compile(code, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return CompileResult("error", stderr=str(error).encode())
    return COMPILED


def run_plainly(text: str, stdin: bytes, seconds: float = TIME_SECONDS) -> ProgramRun:
    """Runs a program as `python -I` in an empty folder, with limits on CPU, wall time, memory and file size."""

    def limit() -> None:
        whole = max(1, round(seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "main.py")
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        with Path(folder, "out").open("w+b") as out, Path(folder, "err").open("w+b") as err:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            child = subprocess.Popen(
                [sys.executable, "-I", str(file)], stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=folder,
                env={}, preexec_fn=limit, start_new_session=True,
            )  # fmt: skip
            try:
                child.communicate(stdin, timeout=2 * seconds + 5)
                timed_out = child.returncode in (-24, -9)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                timed_out = True
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            out.seek(0)
            err.seek(0)
            return ProgramRun(
                end="timeout" if timed_out else "exited",
                exit_code=None if timed_out else child.returncode,
                stdout=out.read(),
                stderr=err.read(1 << 20),
                cpu_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            )


class Judged:
    """One session's outcome and what it took."""

    def __init__(self, outcomes: tuple[FunctionTestOutcome, ...], session: FunctionTestSession) -> None:
        self.outcomes = outcomes
        self.recording = session.recording
        self.batches: list[bytes] = []
        self.replies: list[ProgramRun] = []

    @property
    def statuses(self) -> list[str]:
        return [str(outcome.status) for outcome in self.outcomes]


def judge(
    tests: CheckTest | AssertTests,
    code: str,
    *,
    execute: Execute = run_plainly,
    recorded: bytes | None = None,
    stop_after_timeouts: int = 3,
) -> Judged:
    """Judges a program, each step in a process of its own."""
    session = FunctionTestSession(tests, code, 7, recorded, stop_after_timeouts)
    judged = Judged((), session)
    while True:
        match session.next_step():
            case RunAssertions(stdin=stdin):
                session.assertions_done(execute(assertion_program(), stdin))
            case RunCalls(stdin=stdin, code=text):
                judged.batches.append(stdin)
                compiled = compile_result(text)
                if compiled.status == "ok":
                    judged.replies.append(execute(program(text), stdin))
                    session.calls_done(judged.replies[-1], compiled)
                else:
                    session.calls_done(ProgramRun("not_run"), compiled)
            case Finished(tests=outcomes):
                judged.outcomes, judged.recording = outcomes, session.recording
                return judged


def check_of(row: Mapping[str, object]) -> CheckTest:
    """HumanEval's published row as a test."""
    return CheckTest(str(row["prompt"]), str(row["test"]), str(row["entry_point"]))


def adding(*asserts: str, entry: str = "add", setup: str = "") -> AssertTests:
    """Asserts in MBPP's form."""
    return AssertTests(asserts, setup, entry)


def request_of(stdin: bytes) -> dict[str, object]:
    """A step's input, its first line read."""
    parsed: dict[str, object] = json.loads(stdin.split(b"\n", 1)[0])
    return parsed
