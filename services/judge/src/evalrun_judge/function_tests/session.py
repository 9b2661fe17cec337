"""Function tests (HumanEval's `check`, MBPP's asserts), judged without program and assertions sharing a process. Pure.

A session returns the next step to run, and is then given the step's result:

    session = FunctionTestSession(tests, program, seed, recorded=cache.get(recording_key(tests, seed)))
    while not isinstance(step := session.next_step(), Finished):
        if isinstance(step, RunAssertions):
            session.assertions_done(await assertions.run(step.stdin, limits))   # contained child of the gateway
        else:
            session.calls_done(reply.runs[0], reply.compile)                    # sandbox, mode "calls"

A `RunTogether`, for tests that cannot be judged apart, runs in the sandbox like any program; its result goes to
`together_done`.

1. Record (once per problem: pass `session.recording` on as `recorded`): run the tests with placeholders, to learn
   their calls.
2. Calls: make all tests' calls in order in one process of the sandbox. If the process ends in a call, the test of that
   call has ended, and the later tests go into a fresh process.
3. Replay: run the assertions with the real values. A test that makes another call goes back to 2 with all its calls,
   until `ROUND_SECONDS` are spent. The end of the process in a call counts only if the replay reaches that call: if an
   assertion fails before, the test is a wrong answer.

Time. The limits that the gateway gives a batch are those of a test. If a batch of several tests runs past them, the
test in whose call the batch stopped is timed out if it was the batch's first; otherwise each of the batch's tests runs
again in its own batch, so that no test fails by another test's time. CPU and wall seconds are divided evenly. After
`stop_after_timeouts` timeouts each test without values runs by itself with the short limit (`short_runs`); a test that
does not end within that limit is an assumed timeout.

A failure while recording is the problem's fault (api_error), because no candidate has run yet. If a later assertion run
exceeds its limits, the returned values are the cause, and the test gets timeout or memory_limit. If a program returns
something else each time, so that the calls never settle, the test gets runtime_error.
"""

import ast
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from evalrun_executor.api import CompileResult, ProgramRun
from evalrun_judge.cpython_texts import parse_package
from evalrun_judge.function_tests.call_answers import BatchAnswers, Ending, read_answers
from evalrun_judge.function_tests.together import read_together, together_program
from evalrun_judge.status import ForgeableCause, TestCause, TestStatus
from evalrun_judge.submission import AssertTests, CheckTest, FunctionTestMode
from evalrun_judge.verdict import ASSUMED, UNCONFIRMED
from evalrun_judge.waves import has_failed, make_waves

__all__ = [
    "AssertTests",
    "CheckTest",
    "Finished",
    "FunctionTestOutcome",
    "FunctionTestSession",
    "RunAssertions",
    "RunCalls",
    "RunTogether",
    "recording_key",
]

MAX_UNSETTLED = 8
"""Rounds without progress of the replay. More means a program, or a test, that behaves differently each time."""
ROUND_SECONDS = 60.0
"""Wall seconds that all rounds of a test may take, those of its calls and those of its assertions."""
_MIN_SECONDS = 0.002
"""Minimum time counted for a step, whatever its run reports, so that every session ends."""
_PASSING = (TestCause.UNCONFIRMED, TestCause.NOT_RUN)
"""Causes of an api_error that another attempt may not meet."""
_SHARED = ("imports", "classes", "prints")
"""Facts from the tests' text that the program's process gets."""
OUTPUT_KIB = 64 * 1024
"""Maximum output of calls and assertions in KiB: encoded values of 32 MiB fit."""
REASON_LIMIT = 2000
"""Characters kept of the reason why a test failed: the reason may quote the program."""
WORD = re.compile(r"\w+")
FORMAT = 7
"""Format number of recordings. Increase it when a change of the harness makes old recordings useless."""


@dataclass(frozen=True, slots=True)
class RunAssertions:
    """Run the assertion harness (its `code` is unused) in a contained child, with `OUTPUT_KIB` of output."""

    stdin: bytes
    shareable: bool = False
    """Whether the request may run in one process with others; see `shared_assertions`."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run this program in the sandbox, mode `calls`, on this one input, with `OUTPUT_KIB` of output."""

    stdin: bytes
    code: str
    short: bool = False
    """Whether the short time limit holds, because enough tests have timed out."""


@dataclass(frozen=True, slots=True)
class RunTogether:
    """Run this program in the sandbox, like any program. It holds the candidate and runs one test per input."""

    code: str
    inputs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class FunctionTestOutcome:
    """Outcome of a test."""

    status: TestStatus
    ran: bool
    reason: str = ""
    input: str = ""
    """Source of the assertion that decided; if none failed, of the assert or `check(entry)`."""
    expected: str = ""
    """The other side of a comparison that failed: its value, or its source if it makes calls."""
    actual: str = ""
    """The returned value."""
    stdout: str = ""
    """Beginning of the output of the test's calls."""
    stderr: str = ""
    """Stderr of the process, which several tests may have shared."""
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    permanent: bool = False
    """Whether this is an api_error that no other attempt would change."""
    cause: TestCause | None = None
    missing_module: str = ""
    """Package that Python did not find, if that ended the test or the program."""
    forgeable: ForgeableCause | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Every test has its outcome, or a test has failed and the failure decides."""

    tests: tuple[FunctionTestOutcome, ...]
    indices: tuple[int, ...]
    """Indices of these tests, in order."""
    complete: bool = True
    """Whether these are all tests of the problem."""


@dataclass(slots=True)
class _Test:
    index: int
    source: str
    label: str
    calls: list[object] = field(default_factory=list)
    refusal: Ending | None = None
    """Reason found while recording why the test cannot be judged."""
    lines: list[bytes] | None = None
    """Results of the calls, as the program may have written them; None while they are missing."""
    end: list[str] | None = None
    """Status, reason and cause, if the process ended in the call after those of `lines`."""
    timed_out: bool = False
    """Whether the process ran out of time in a call of the test. The replay may never reach that call."""
    late: bool = False
    """Whether every call ended, but past the limit."""
    rounds: int = 0
    reached: int = -1
    """Highest number of calls that a replay has reached."""
    unsettled: int = 0
    """Rounds since the replay last made progress."""
    spent: float = 0.0
    """Wall seconds of the test's rounds so far."""
    alone: bool = False
    """Whether the test goes into a batch of its own."""
    run: ProgramRun | None = None
    share: int = 1
    printed: str = ""
    outcome: FunctionTestOutcome | None = None


class FunctionTestSession:
    """Judges one program against one problem's tests; see the module.

    Args:
        tests: the problem's tests.
        program: the program as it runs, after the problem's prompt if that belongs before it.
        seed: seed of `random` on the assertions' side.
        recorded: an earlier session's `recording` of the same tests and seed.
        stop_after_timeouts: number of timeouts after which the other tests get the short limit; 0: never.
        secret: a text that no program knows, for tests that run in the program's process.
        mode: the process in which the dataset wants its tests to run.
        stop_at_failure: end at the first failed test, if going on would take another process of the program.
    """

    def __init__(
        self,
        tests: CheckTest | AssertTests,
        program: str,
        seed: int = 0,
        recorded: bytes | None = None,
        stop_after_timeouts: int = 3,
        secret: str = "",
        mode: FunctionTestMode = FunctionTestMode.AUTO,
        *,
        stop_at_failure: bool = False,
    ) -> None:
        self._problem = tests
        self._stop_at_failure = stop_at_failure
        self._secret = secret
        self._mode = mode
        self._together: ForgeableCause | None = None
        """Why the tests run in the program's process; None: they do not."""
        self._program = program
        self._seed = seed
        self._stop_after = stop_after_timeouts
        self._learned: dict[str, object] = {}
        self._tests = _make_tests(tests)
        self._batch: list[_Test] = []
        self._short = False
        """Whether the last calls ran with the short limit."""
        self._replayed: list[_Test] = []
        self._loaded = False
        self.recording: bytes | None = None
        """The tests' calls, once recorded successfully. They are the same for every program."""
        if recorded is not None:
            self._take_recording(recorded)

    def next_step(self) -> RunAssertions | RunCalls | RunTogether | Finished:
        """Return what to run next."""
        while True:
            open_tests = [test for test in self._tests if test.outcome is None]
            if not open_tests or self._is_decided():
                ended = [(test.outcome, test.index) for test in self._tests if test.outcome is not None]
                outcomes, indices = zip(*ended, strict=True)
                return Finished(outcomes, indices, complete=not open_tests)
            if self.recording is None:
                # Every recording is shareable: the harness sends back a request that may not share a process.
                return RunAssertions(self._header("record", open_tests), shareable=True)
            if self._together is not None:
                self._batch = self._choose_wave(open_tests)
                return RunTogether(together_program(self._program), tuple(map(self._request_together, self._batch)))
            wanting = [test for test in open_tests if test.lines is None]
            if wanting and not self._has_enough_timeouts(open_tests) and not self._may_be_decided(open_tests):
                self._batch = wanting[:1] if wanting[0].alone else [test for test in wanting if not test.alone]
                return self._calls(short=False)
            self._replayed = [test for test in open_tests if test.lines is not None]
            if self._replayed:
                return self._replay()
            self._batch = wanting[:1]
            return self._calls(short=True)

    def assertions_done(self, run: ProgramRun) -> None:
        """Process the result of the last `RunAssertions`."""
        if self.recording is None:
            if run.end != "exited" or run.exit_code != 0 or not self._take_recording(run.stdout):
                cause = None if self._tests_compile() else TestCause.BROKEN_TEST
                unrecorded = Ending(TestStatus.API_ERROR, f"the tests could not be recorded: {_why(run)}", cause)
                if not run.confirmed:
                    unrecorded = Ending(TestStatus.API_ERROR, UNCONFIRMED, TestCause.UNCONFIRMED)
                self._end_all(unrecorded, ran=False)
            return
        lines = run.stdout.splitlines()
        for test in self._replayed:
            test.spent += max(run.wall_seconds, _MIN_SECONDS) / len(self._replayed)
        for position, test in enumerate(self._replayed):
            report = _object(lines[position]) if position < len(lines) else {}
            if report.get("test") != test.index:
                self._assertions_ended(test, run)
                # The later tests are replayed again.
                return
            self._take_report(test, report)

    def _tests_compile(self) -> bool:
        try:
            for test in self._tests:
                ast.parse(test.source)
        except (SyntaxError, ValueError, RecursionError):
            return False
        return True

    def calls_done(self, run: ProgramRun, compiled: CompileResult) -> None:
        """Process the result of the last `RunCalls`."""
        if compiled.status != "ok":
            status = TestStatus.COMPILE_ERROR if compiled.status == "error" else TestStatus.COMPILE_TIMEOUT
            self._end_all(Ending(status), ran=False, stderr=compiled.stderr.decode("utf-8", "replace"))
            return
        if self._short and run.end == "timeout":
            self._batch[0].run = run
            self._end(self._batch[0], TestStatus.ASSUMED_TIMEOUT, ASSUMED)
            return
        answers = read_answers(run, [(test.index, len(test.calls)) for test in self._batch])
        for test in self._batch:
            test.run, test.share = run, len(self._batch)
            test.spent += max(run.wall_seconds, _MIN_SECONDS) / len(self._batch)
        if not answers.loaded:
            self._end_unloaded(run, answers)
            return
        self._loaded = True
        stopped = next((n for n, test in enumerate(answers.tests) if not test.complete), len(self._batch))
        if run.end == "timeout" and len(self._batch) > 1 and stopped > 0:
            for test in self._batch:
                test.alone = True
            return
        for test, given in zip(self._batch[: stopped + 1], answers.tests, strict=False):
            lines = list(given.lines)
            test.end = None
            if not given.complete:
                end = answers.end
                test.end = [end.status, end.reason, end.cause or ""]
                test.timed_out = end.status is TestStatus.TIMEOUT
            test.late = run.end == "timeout" and given.complete
            test.lines, test.printed = lines, given.printed
        for test in self._batch[stopped + 1 :]:
            test.alone = test.alone or run.end == "timeout"

    def together_done(self, runs: Sequence[ProgramRun], compiled: CompileResult) -> None:
        """Process the result of the last `RunTogether`."""
        for test, run in zip(self._batch, runs, strict=True):
            test.run = run
            end = read_together(run, self._secret)
            self._end(
                test, end.status, end.reason, cause=end.cause, missing_module=end.missing_module,
                ran=end.status is not TestStatus.COMPILE_ERROR, forgeable=self._together,
            )  # fmt: skip

    def _request_together(self, test: _Test) -> bytes:
        problem = self._problem
        form = "asserts" if isinstance(problem, AssertTests) else "check"
        before = self._learned.get("before")
        request = {
            "secret": self._secret,
            "entry": problem.entry_point,
            "form": "cases" if self._together is ForgeableCause.CASES else form,
            "setup": problem.setup_code if isinstance(problem, AssertTests) else "",
            "before": before.get(str(test.index), "") if isinstance(before, dict) else "",
            "test": test.source,
        }
        return json.dumps(request).encode()

    def _end_unloaded(self, run: ProgramRun, answers: BatchAnswers) -> None:
        """End all open tests, because the program cannot be loaded; only the batch if an earlier one could load it."""
        end = answers.load_end or answers.end
        ended = self._batch if self._loaded else [test for test in self._tests if test.outcome is None]
        for test in ended:
            test.run, test.share = run, len(ended)
            self._end(test, end.status, end.reason, cause=end.cause, missing_module=end.missing_module)

    def _is_decided(self) -> bool:
        """Return whether a failed test decides, so that the other tests no longer count."""
        return self._stop_at_failure and has_failed(test.outcome.status for test in self._tests if test.outcome)

    def _may_be_decided(self, open_tests: list[_Test]) -> bool:
        """Return whether a replay may find a failure that spares the other tests a process of their own.

        A program whose process never ended has run all tests in one process, and stopping would save nothing.
        """
        return self._stop_at_failure and any(test.end is not None or test.late for test in open_tests)

    def _choose_wave(self, open_tests: list[_Test]) -> list[_Test]:
        """Return the tests that run next, each in a process of its own; all of them if a failure decides nothing."""
        if not self._stop_at_failure:
            return open_tests
        return next(
            [self._tests[index] for index in wave]
            for wave in make_waves(len(self._tests), "python")
            if wave.start >= open_tests[0].index
        )

    def _has_enough_timeouts(self, open_tests: list[_Test]) -> bool:
        """Return whether there were enough timeouts, including those that a replay may revoke."""
        if not self._stop_after:
            return False
        sure = sum(t.outcome is not None and t.outcome.status is TestStatus.TIMEOUT for t in self._tests)
        return (
            sure + sum(test.timed_out or test.late for test in open_tests if test.lines is not None) >= self._stop_after
        )

    def _header(self, mode: str, tests: list[_Test]) -> bytes:
        problem = self._problem
        check = isinstance(problem, CheckTest)
        header = {
            "mode": mode,
            "kind": "check" if check else "asserts",
            "prompt": problem.prompt if isinstance(problem, CheckTest) else "",
            "setup": problem.setup_code if isinstance(problem, AssertTests) else "",
            "entry": problem.entry_point,
            "seed": self._seed,
            "names": [],
            "modules": [],
            **self._learned,
            "tests": [[test.index, test.source, test.calls, test.end] for test in tests],
        }
        return json.dumps(header, separators=(",", ":")).encode() + b"\n"

    def _calls(self, *, short: bool) -> RunCalls:
        self._short = short
        tests = [[test.index, test.calls] for test in self._batch]
        shared = {name: self._learned[name] for name in _SHARED if self._learned.get(name)}
        definitions = select_definitions(self._program, self._learned.get("spare"))
        if definitions:
            shared["imports"] = "\n".join([str(shared.get("imports", "")), *definitions])
        draws = int(hashlib.sha256(f"draws {self._secret}".encode()).hexdigest()[:15], 16)
        text = json.dumps({"imports": "", "draws": draws, **shared, "tests": tests}, separators=(",", ":"))
        return RunCalls(text.encode(), self._program, short=short)

    def _replay(self) -> RunAssertions:
        lines = [line for test in self._replayed for line in test.lines or ()]
        request = self._header("replay", self._replayed) + b"".join(line + b"\n" for line in lines)
        return RunAssertions(request, shareable=self._learned.get("pure") is True)

    def _take_recording(self, recorded: bytes) -> bool:
        """Take names and calls from a recording. Return whether the text was a recording of these tests."""
        head, *reports = [_object(line) for line in recorded.splitlines()] or [{}]
        names, modules, imports = head.get("names"), head.get("modules"), head.get("imports")
        if not isinstance(names, list) or not isinstance(modules, list) or not isinstance(imports, str):
            return False
        if len(reports) != len(self._tests):
            return False
        self._learned = head
        given = head.get("before")
        before = given if isinstance(given, dict) else {}
        for test, report in zip(self._tests, reports, strict=True):
            calls = report.get("calls")
            test.calls = calls if isinstance(calls, list) else []
            # A test that needs earlier tests runs in a process that has not made their calls yet.
            test.alone = str(test.index) in before
            test.refusal = None if isinstance(calls, list) else _read_ending(report, TestStatus.API_ERROR)
        self.recording = recorded
        refusal = next((test.refusal for test in self._tests if test.refusal is not None), None)
        cause = next((str(report["together"]) for report in reports if report.get("together")), "")
        if self._mode is FunctionTestMode.TOGETHER or (cause and self._mode is FunctionTestMode.AUTO):
            # The decision holds for the whole problem and is made before any completion runs.
            self._together = ForgeableCause(cause) if cause else ForgeableCause.ASKED
        elif refusal is not None:
            # The refusal holds for the whole problem: whether a completion is judged must not depend on where it fails
            # elsewhere.
            self._end_all(refusal, ran=False)
        return True

    def _take_report(self, test: _Test, report: dict[str, object]) -> None:
        calls = report.get("calls")
        if isinstance(calls, list):
            reached = report.get("reached")
            self._need(test, calls, reached if isinstance(reached, int) else len(calls))
            return
        end = _read_ending(report, TestStatus(str(report.get("status"))))
        if test.late and end.status is TestStatus.SUCCESS:
            end = Ending(TestStatus.TIMEOUT, "every call ended, but past the time limit")
        given, expected, actual, own = (
            str(report.get(name) or "") for name in ("input", "expected", "actual", "own_answer")
        )
        reason = f"an operator of the program's own class decides: {own}"[:REASON_LIMIT] if own else end.reason
        self._end(
            test, end.status, reason, cause=end.cause, missing_module=end.missing_module,
            input=given, expected=expected, actual=actual, forgeable=ForgeableCause.OWN_OPERATORS if own else None,
        )  # fmt: skip

    def _need(self, test: _Test, calls: list[object], reached: int) -> None:
        """Start another round for a test, or end it."""
        test.rounds += 1
        test.unsettled = 0 if reached > test.reached else test.unsettled + 1
        test.reached = max(test.reached, reached)
        if test.unsettled >= MAX_UNSETTLED:
            # The recording made the same calls each time, so the program's results are what changes them.
            self._end(test, TestStatus.RUNTIME_ERROR, "the program returns something else each time it is called")
            return
        if test.spent >= ROUND_SECONDS:
            reason = f"its calls hang on each other, and {test.rounds} rounds of them took {test.spent:.0f} s"
            self._end(test, TestStatus.TIMEOUT, reason)
            return
        test.calls, test.lines, test.end, test.timed_out, test.late = calls, None, None, False, False

    def _assertions_ended(self, test: _Test, run: ProgramRun) -> None:
        """End the test in whose replay the child ended. If its values exceed a limit, the program caused it."""
        match run.end:
            case "timeout":
                self._end(
                    test, TestStatus.TIMEOUT, "comparing what the program returned ran past the time limit", by=run
                )
            case "memory_limit":
                self._end(test, TestStatus.MEMORY_LIMIT, "comparing what the program returned ran out of memory")
            case _:
                # The assertions ended well with placeholders, so the values that the program returned ended them.
                reason = f"the test's own process ended on what the program returned: {_why(run)}"
                self._end(test, TestStatus.RUNTIME_ERROR, reason)

    def _end_all(self, end: Ending, *, ran: bool, stderr: str = "") -> None:
        for test in self._tests:
            if test.outcome is None:
                self._end(test, end.status, end.reason, cause=end.cause, missing_module=end.missing_module, ran=ran)
                if stderr and test.outcome is not None:
                    test.outcome = FunctionTestOutcome(end.status, ran, end.reason, input=test.label, stderr=stderr)

    def _end(
        self,
        test: _Test,
        status: TestStatus,
        reason: str,
        *,
        cause: TestCause | None = None,
        missing_module: str = "",
        ran: bool = True,
        by: ProgramRun | None = None,
        input: str = "",  # noqa: A002 - the record's own name
        expected: str = "",
        actual: str = "",
        forgeable: ForgeableCause | None = None,
    ) -> None:
        """Record a test's outcome. `by` is the deciding run, if that is not the run of the test's own calls."""
        run = test.run
        decided = by or run
        if status is TestStatus.TIMEOUT and ran and decided is not None and not decided.confirmed and decided.measured:
            # The gateway lost the process, so nothing is known, whatever the program did meanwhile.
            status, reason, cause = TestStatus.API_ERROR, UNCONFIRMED, TestCause.UNCONFIRMED
        test.outcome = FunctionTestOutcome(
            status=status,
            ran=ran,
            reason=reason,
            input=input or test.label,
            expected=expected,
            actual=actual,
            stdout=test.printed,
            stderr="" if run is None else run.stderr.decode("utf-8", "replace"),
            exit_code=None if run is None else run.exit_code,
            cpu_seconds=0.0 if run is None else run.cpu_seconds / test.share,
            wall_seconds=0.0 if run is None else run.wall_seconds / test.share,
            permanent=status is TestStatus.API_ERROR and (by is None and cause not in _PASSING),
            cause=cause,
            missing_module=missing_module,
            forgeable=forgeable,
        )


def recording_key(tests: CheckTest | AssertTests, seed: int) -> str:
    """Return the name under which a recording of these tests is cached. The name is the same for every program."""
    parts: list[object] = [FORMAT, seed, type(tests).__name__, tests.entry_point]
    if isinstance(tests, CheckTest):
        parts += [tests.prompt, tests.test]
    else:
        parts += [tests.setup_code, list(tests.asserts)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _make_tests(tests: CheckTest | AssertTests) -> list[_Test]:
    if isinstance(tests, CheckTest):
        return [_Test(0, tests.test, f"check({tests.entry_point})")]
    return [_Test(index, source, source) for index, source in enumerate(tests.asserts)]


def select_definitions(program: str, spare: object) -> list[str]:
    """Return the tests' definitions whose names stand in the program, and the definitions that those need, in order.

    A definition that the program does not ask for by name is not sent.

    Args:
        program: the program's text.
        spare: `[names, text]` of each definition; see the harness's `definitions`.
    """
    left = spare if isinstance(spare, list) else []
    taken: list[str] = []
    wanted = set(WORD.findall(program)) if left else set()
    while found := [text for names, text in left if text not in taken and not wanted.isdisjoint(names)]:
        taken += found
        wanted.update(*(WORD.findall(text) for text in found))
    return [text for _, text in left if text in taken]


def _read_ending(report: dict[str, object], status: TestStatus) -> Ending:
    cause = report.get("cause")
    return Ending(
        status,
        str(report.get("reason"))[:REASON_LIMIT],
        TestCause(str(cause)) if cause else None,
        parse_package(report.get("missing_module")),
    )


def _object(line: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _why(run: ProgramRun) -> str:
    """Return a line about an assertion run that did not end well."""
    last = run.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
    return last or f"{run.end}, exit code {run.exit_code}"
