"""Tests as a C++ `main` with assertions in the same file as the program, as in MultiPL-E.

The program shares the process with what decides, and so it can forge a pass: verdicts say so, and feed no gate. What is
cheap to refuse is refused: `assert` is defined again after the program, and `main` has to reach its last line, which
prints a text that no program knows before it runs. A program that ends the process with 0 does not pass.
"""

import re
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from evalrun_executor.api import Limits, ProgramRun, RunRequest
from evalrun_judge.cache.verdict_cache import Judged, is_stable
from evalrun_judge.extraction import Extraction, SubmissionMode
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.records import records_of_runs
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, Tests
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import TestOutcome, compile_status, failure_of
from evalrun_proto.judge.v1 import judge_pb2

STOP: Final = "\n}"
"""Text at which MultiPL-E cuts the continuation of a C++ prompt: the end of the function."""

ENDED_EARLY: Final = "the program ended before its tests did"

_INCLUDES: Final = re.compile(r"^[ \t]*(?:#[ \t]*include\b|using\b).*$", re.MULTILINE)
_TYPES: Final = re.compile(r"^(union|struct|class)\s+(\w+)", re.MULTILINE)
_ASSERTS_AGAIN: Final = "#undef main\n#undef assert\n#undef NDEBUG\n#include <assert.h>\n#include <stdio.h>\n"
_FAILED: Final = re.compile(rb": Assertion `.*' failed\.")


@dataclass(frozen=True, slots=True)
class MainTest(Tests):
    """A test in MultiPL-E's form: a `main` with assertions that follows the program in the same file."""

    prompt: str
    main: str
    entry_point: str

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return the asserting function as the input of the only test."""
        return [(self.main.encode("utf-8", "surrogatepass"), b"")]


@dataclass(frozen=True, slots=True)
class MainPlan:
    """A program, to which `main` is added when it runs."""

    program: str


def read_main(message: judge_pb2.JudgeRequest, suites: Suites) -> MainTest:
    """Read the asserting function."""
    return MainTest(message.main.prompt, message.main.main, message.main.entry_point)


def program_of(tests: MainTest, code: str, mode: SubmissionMode) -> str:
    """Return the program without its tests. Pure.

    Code that defines the function replaces the function's stub in the prompt, and the `main` in such code is renamed.
    Other code is appended to the prompt and cut where MultiPL-E cuts it.
    """
    if mode is SubmissionMode.APPEND or (mode is SubmissionMode.AUTO and not _defines(code, tests.entry_point)):
        return f"{tests.prompt}{code.partition(STOP)[0]}{STOP}\n"
    return f"{_before_function(tests, code)}\n#define main evalrun_own_main\n{code}\n"


def _before_function(tests: MainTest, code: str) -> str:
    """Return the part of the prompt before the function: includes and the types of its arguments.

    The includes alone where the code defines one of those types itself.
    """
    heads = [*re.finditer(rf"^[^\s/#*].*\b{re.escape(tests.entry_point)}[ \t]*\(", tests.prompt, re.MULTILINE)]
    before = tests.prompt[: heads[-1].start()] if heads else ""
    own = any(re.search(rf"\b{kind}\s+{name}\s*\{{", code) for kind, name in _TYPES.findall(before))
    return before if heads and not own else "\n".join(_INCLUDES.findall(tests.prompt))


def with_tests(program: str, main: str, secret: str) -> str:
    """Return the program with its tests. The last line prints the secret."""
    last = f'    fputs("\\n{secret}\\n", stdout);\n}}\n'
    return f"{program}{_ASSERTS_AGAIN}{main.rstrip().removesuffix('}')}{last}"


def outcome_of(run: ProgramRun, secret: str) -> TestOutcome:
    """Return the outcome of a program's run with its tests. Pure."""
    failure = failure_of(run)
    if failure is None:
        told = secret.encode() in run.stdout
        return TestOutcome(TestStatus.SUCCESS) if told else TestOutcome(TestStatus.WRONG_ANSWER, ENDED_EARLY)
    if run.end == "exited" and run.exit_code == -signal.SIGABRT and (said := _FAILED.search(run.stderr)):
        return TestOutcome(TestStatus.WRONG_ANSWER, said[0][2:202].decode("utf-8", "replace"))
    return failure


class MainFamily(Family[MainPlan]):
    """Judges C++ functions by a `main` that asserts.

    Args:
        runners: what runs programs.
        secret: returns another text at each call, which a program cannot know.
    """

    FORMS: ClassVar[Mapping[str, FormReader]] = {"main": read_main}
    TESTS: ClassVar[tuple[type, ...]] = (MainTest,)
    FORGEABLE: ClassVar[bool] = True

    def __init__(self, runners: Runners, secret: Callable[[], str] = secrets.token_hex) -> None:
        self._pool = runners.pool
        self._secret = secret

    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse other languages and tests without a `main`; see `Family.check`."""
        tests = cast(MainTest, request.tests)
        if (language := request.submission.language) != "cpp":
            raise InvalidRequestError(f"submission.language: a main that asserts is judged in cpp, not in {language!r}")
        if not re.fullmatch(r"\s*int\s+main\s*\(\s*\)\s*\{.*\}\s*", tests.main, re.DOTALL):
            raise InvalidRequestError("main.main: it is not a whole function int main() { ... }; send that")
        if not re.fullmatch(r"[A-Za-z_]\w*", tests.entry_point, re.ASCII):
            raise InvalidRequestError(f"main.entry_point: {tests.entry_point!r} is not the name of a C++ function")

    def plan(self, request: JudgeRequest, extraction: Extraction) -> MainPlan:
        """Return the program; see `Family.plan`."""
        return MainPlan(program_of(cast(MainTest, request.tests), extraction.code, request.submission.mode))

    def key(self, plan: MainPlan, request: JudgeRequest) -> object:
        """Return program and test; see `Family.key`."""
        return ("cpp", plan.program, "main"), cast(MainTest, request.tests).main

    async def judge(self, plan: MainPlan, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Run the program with its tests, once; see `Family.judge`."""
        tests, limits, secret = cast(MainTest, request.tests), request.limits, self._secret()
        run = RunRequest(
            language="cpp",
            code=with_tests(plan.program, tests.main, secret),
            inputs=[b""],
            limits=Limits(limits.time_seconds, limits.memory_mib, limits.output_kib),
        )
        reply = await self._pool.run(run, run=request.run, on_slot=on_begin)
        uncompiled = compile_status(reply.compile)
        outcomes = [outcome_of(each, secret) if uncompiled is None else TestOutcome(uncompiled) for each in reply.runs]
        shown = [given for given, _ in tests.texts()]
        records = records_of_runs(shown, [b""], reply, outcomes)
        return Judged(tuple(records), reply.level, stable=is_stable(records))


def _defines(code: str, name: str) -> bool:
    """Return whether C++ code defines a function of this name, judging by the line of its head."""
    return re.search(rf"^[^\s/#*][^\n;={{]*\b{re.escape(name)}[ \t]*\(", code, re.MULTILINE) is not None
