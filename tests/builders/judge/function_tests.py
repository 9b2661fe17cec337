"""Function tests judged for tests: sessions driven by plain processes with limits, and by warm forks for speed."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from evalrun_executor.api import CompileResult, ProgramRun
from evalrun_executor.harness import CALL_HARNESS, sources
from evalrun_judge.function_tests.assertions import ASSERTION_HARNESS
from evalrun_judge.function_tests.programs import program
from evalrun_judge.function_tests.session import (
    AssertTests,
    CheckTest,
    Finished,
    FunctionTestOutcome,
    FunctionTestSession,
    RunAssertions,
    RunCalls,
    RunTogether,
)
from evalrun_judge.submission import FunctionTestMode

TIME_SECONDS = 10
MEMORY_BYTES = 1 << 30
OUTPUT_BYTES = 48 << 20
COMPILED = CompileResult("ok")

Execute = Callable[[str, str, bytes], ProgramRun]
"""Runs a step: `calls` or `assertions`, the program, the input."""


def compile_result(code: str) -> CompileResult:
    """What the sandbox says about the program before it runs it."""
    try:
        compile(code, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return CompileResult("error", stderr=str(error).encode())
    return COMPILED


def run_plainly(text: str, stdin: bytes, seconds: float = TIME_SECONDS) -> ProgramRun:
    """Runs a program as `python -I` in an empty directory, with limits on CPU, wall time, memory and file size."""

    def limit() -> None:
        whole = max(1, round(seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "main.py")
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        with Path(directory, "out").open("w+b") as out, Path(directory, "err").open("w+b") as err:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(file)],
                stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=directory,
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


def standalone(mode: str, code: str, stdin: bytes, seconds: float = TIME_SECONDS) -> ProgramRun:
    """Runs a step as a stand-alone program."""
    text = program(CALL_HARNESS, code) if mode == "calls" else program(ASSERTION_HARNESS, "")
    return run_plainly(text, stdin, seconds)


class WarmForks:
    """Runs harness steps in forks of a small preloaded process, as the zygotes do; one step at a time."""

    def __init__(self, *packages: str) -> None:
        """`packages`: of this environment, imported ahead for the programs, which else can import none of them."""
        sites = [] if packages else ["-S"]
        text = "".join(f"import {package}\n" for package in packages) + _SERVER
        self._server = subprocess.Popen(
            [sys.executable, "-I", *sites, "-c", text],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"OPENBLAS_NUM_THREADS": "1"} if packages else {},
        )  # fmt: skip
        self._send(json.dumps(sources([CALL_HARNESS, ASSERTION_HARNESS])).encode())
        self.cpu_seconds = 0.0
        """Used by the forks so far."""

    def run(self, mode: str, code: str, stdin: bytes, seconds: float = TIME_SECONDS) -> ProgramRun:
        """Run one step; `mode` is `calls` or `assertions`."""
        started = time.monotonic()
        self._send(json.dumps([mode, code, seconds]).encode())
        self._send(stdin)
        kind, code_, cpu = json.loads(self._receive())
        stdout, stderr = self._receive(), self._receive()
        self.cpu_seconds += cpu
        return ProgramRun(kind, code_, stdout, stderr, cpu_seconds=cpu, wall_seconds=time.monotonic() - started)

    def close(self) -> None:
        self._server.communicate()

    def _send(self, data: bytes) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(b"%d\n" % len(data) + data)
        self._server.stdin.flush()

    def _receive(self) -> bytes:
        assert self._server.stdout is not None
        return self._server.stdout.read(int(self._server.stdout.readline()))


_SERVER = """
import gc, json, os, random, resource, select, signal, sys, time
def receive():
    line = sys.stdin.buffer.readline()
    if not line: os._exit(0)
    return sys.stdin.buffer.read(int(line))
def send(data):
    sys.stdout.buffer.write(b"%d\\n" % len(data) + data); sys.stdout.buffer.flush()
import typing, math, copy, collections
for name, path, source in json.loads(receive()):
    module = type(sys)(name); sys.modules[name] = module
    if source is None: module.__path__ = []
    else: exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
harness = {"calls": sys.modules["evalrun_executor.calls.call_harness"],
           "assertions": sys.modules["evalrun_judge.function_tests.harness.main"]}
gc.collect(); gc.freeze()
while True:
    mode, code, seconds = json.loads(receive())
    given = os.memfd_create("in"); data = receive()
    while data: data = data[os.write(given, data):]
    os.lseek(given, 0, 0)
    out, out_end = os.pipe(); err, err_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd, place in ((given, 0), (out_end, 1), (err_end, 2)): os.dup2(fd, place)
        os.closerange(3, 32)
        os.setpgid(0, 0)
        whole = max(1, round(seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        sys.stdin = open(0, closefd=False); sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", 1, closefd=False)
        try: harness[mode].main(code)
        except BaseException as error: sys.__excepthook__(type(error), error, error.__traceback__)
        os._exit(1)
    os.close(given); os.close(out_end); os.close(err_end)
    # CPU time decides here; MBPP/123 takes 2 s of it, which a busy machine stretched past 2 * seconds + 5.
    texts = {out: [], err: []}; open_ = [out, err]; end = time.monotonic() + 12 * seconds; late = False
    while open_:
        ready = select.select(open_, [], [], max(0, end - time.monotonic()))[0]
        if not ready:
            late = True; break
        for fd in ready:
            part = os.read(fd, 65536)
            if part: texts[fd].append(part)
            else: open_.remove(fd)
    try: os.killpg(pid, signal.SIGKILL) if late else None
    except OSError: pass
    _, status, usage = os.wait4(pid, 0)
    os.close(out); os.close(err)
    exit_code = os.waitstatus_to_exitcode(status)
    late = late or exit_code in (-24, -9)
    send(json.dumps(["timeout" if late else "exited", None if late else exit_code,
                     usage.ru_utime + usage.ru_stime]).encode())
    send(b"".join(texts[out])); send(b"".join(texts[err]))
"""


class Judged:
    """One session's outcome and what it took."""

    def __init__(self, outcomes: tuple[FunctionTestOutcome, ...], session: FunctionTestSession) -> None:
        self.outcomes = outcomes
        self.recording = session.recording
        self.batches: list[bytes] = []
        self.replies: list[ProgramRun] = []

    @property
    def forgeable(self) -> list[str]:
        return sorted({str(outcome.forgeable) for outcome in self.outcomes if outcome.forgeable is not None})

    @property
    def statuses(self) -> list[str]:
        return [str(outcome.status) for outcome in self.outcomes]


def judge(
    tests: CheckTest | AssertTests,
    code: str,
    *,
    execute: Execute = standalone,
    recorded: bytes | None = None,
    stop_after_timeouts: int = 3,
    mode: FunctionTestMode = FunctionTestMode.AUTO,
    stop_at_failure: bool = False,
) -> Judged:
    """Judges a program, each step in a process of its own."""
    session = FunctionTestSession(
        tests, code, 7, recorded, stop_after_timeouts, "5ec2e7", mode, stop_at_failure=stop_at_failure
    )
    judged = Judged((), session)
    while True:
        match session.next_step():
            case RunAssertions(stdin=stdin):
                session.assertions_done(execute("assertions", "", stdin))
            case RunCalls(stdin=stdin, code=text):
                judged.batches.append(stdin)
                compiled = compile_result(text)
                if compiled.status == "ok":
                    judged.replies.append(execute("calls", text, stdin))
                    session.calls_done(judged.replies[-1], compiled)
                else:
                    session.calls_done(ProgramRun("not_run"), compiled)
            case RunTogether(code=text, inputs=inputs):
                runs = [run_plainly(text, stdin) for stdin in inputs]
                judged.replies += runs
                session.together_done(runs, COMPILED)
            case Finished(tests=outcomes):
                judged.outcomes, judged.recording = outcomes, session.recording
                return judged


def check_of(row: Mapping[str, object]) -> CheckTest:
    return CheckTest(str(row["prompt"]), str(row["test"]), str(row["entry_point"]))


def adding(*asserts: str, entry: str = "add", setup: str = "") -> AssertTests:
    return AssertTests(asserts, setup, entry)


def request_of(stdin: bytes) -> dict[str, object]:
    """A step's input, its first line read."""
    parsed: dict[str, object] = json.loads(stdin.split(b"\n", 1)[0])
    return parsed
