"""Judges by a `main` with assertions in the same file as the program, as in MultiPL-E and HumanEval-X.

The program shares the process with the assertions, so it can forge a pass: verdicts are marked, and feed no gate. Cheap
cheats are refused: C++'s `assert` is defined again after the program, and `main` has to reach its last line, which
prints a text that no program knows before it runs. A program that ends the process with 0 does not pass.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from evalrun_executor.api import Limits, ProgramRun, RunRequest
from evalrun_judge.cache.verdict_cache import Judged, is_stable
from evalrun_judge.extraction import Extraction
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.families.humaneval_x_forms import HUMANEVAL_X_FORMS
from evalrun_judge.families.main_forms import FORMS, MainForm, make_program
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.records import records_of_runs
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, Tests
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import TestOutcome, compile_status, find_failure
from evalrun_proto.judge.v1 import judge_pb2

ENDED_EARLY: Final = "the program ended before its tests did"


@dataclass(frozen=True, slots=True)
class MainTest(Tests):
    """A test in MultiPL-E's form or HumanEval-X's: assertions that follow the program in the same file."""

    prompt: str
    main: str
    entry_point: str

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return the asserting function as the input of the only test."""
        return [(self.main.encode("utf-8", "surrogatepass"), b"")]


@dataclass(frozen=True, slots=True)
class MainPlan:
    """A program, to which `main` is added when it runs."""

    form: MainForm
    program: str


def read_main(message: judge_pb2.JudgeRequest, suites: Suites) -> MainTest:
    """Read the asserting function."""
    return MainTest(message.main.prompt, message.main.main, message.main.entry_point)


def find_form(language: str, main: str) -> MainForm | None:
    """Return the form of an asserting function in a language; None if no known form matches."""
    forms = [forms[language] for forms in (FORMS, HUMANEVAL_X_FORMS) if language in forms]
    # HumanEval-X's form comes first: its pattern for Go is narrower, and its program defines the `assert` that such
    # tests use.
    return next((form for form in reversed(forms) if form.whole.fullmatch(main)), None)


def decide_outcome(form: MainForm, run: ProgramRun, secret: str) -> TestOutcome:
    """Return the outcome of a program's run with its tests. Pure."""
    failure = find_failure(run)
    if failure is None:
        ended = secret.encode() in run.stdout
        return TestOutcome(TestStatus.SUCCESS) if ended else TestOutcome(TestStatus.WRONG_ANSWER, ENDED_EARLY)
    told = run.stdout if form.tells_on_stdout else run.stderr
    if run.end == "exited" and run.exit_code == form.exit_code and (said := form.failed.search(told)):
        return TestOutcome(TestStatus.WRONG_ANSWER, said[0][:200].decode("utf-8", "replace"))
    return failure


class MainFamily(Family[MainPlan]):
    """Judges functions by a `main` that asserts.

    Args:
        runners: run programs.
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
        if (language := request.submission.language) not in FORMS:
            raise InvalidRequestError(
                f"submission.language: a main that asserts is judged in {', '.join(FORMS)}, not in {language!r}"
            )
        if find_form(language, tests.main) is None:
            shapes = [forms[language].shape for forms in (FORMS, HUMANEVAL_X_FORMS) if language in forms]
            raise InvalidRequestError(f"main.main: it is not a whole {', or '.join(shapes)}; send that")
        if not re.fullmatch(r"[A-Za-z_]\w*", tests.entry_point, re.ASCII):
            raise InvalidRequestError(f"main.entry_point: {tests.entry_point!r} is not the name of a function")

    def plan(self, request: JudgeRequest, extraction: Extraction) -> MainPlan:
        """Return the program; see `Family.plan`."""
        tests, mode = cast(MainTest, request.tests), request.submission.mode
        form = find_form(request.submission.language, tests.main)
        if form is None:
            raise InvalidRequestError("main.main: it has no form that is known")
        return MainPlan(form, make_program(form, tests.prompt, tests.entry_point, extraction.code, mode))

    def key(self, plan: MainPlan, request: JudgeRequest) -> object:
        """Return program and test; see `Family.key`."""
        return (plan.form.language, plan.program, "main"), cast(MainTest, request.tests).main

    async def judge(self, plan: MainPlan, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Run the program with its tests, once; see `Family.judge`."""
        tests, limits, secret = cast(MainTest, request.tests), request.limits, self._secret()
        run = RunRequest(
            language=plan.form.language,
            code=plan.form.add_tests(plan.program, tests.main, secret),
            inputs=[b""],
            limits=Limits(limits.time_seconds, limits.memory_mib, limits.output_kib),
        )
        reply = await self._pool.run(run, run=request.run, on_slot=on_begin)
        uncompiled = compile_status(reply.compile)
        outcomes = [
            decide_outcome(plan.form, each, secret) if uncompiled is None else TestOutcome(uncompiled)
            for each in reply.runs
        ]
        shown = [given for given, _ in tests.texts()]
        records = records_of_runs(shown, [b""], reply, outcomes)
        return Judged(tuple(records), reply.level, stable=is_stable(records))
