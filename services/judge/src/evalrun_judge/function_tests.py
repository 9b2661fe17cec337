"""Function tests (HumanEval's `check`, MBPP's asserts), judged without program and assertions sharing a process. Pure.

A session says what to run next, and is told what came of it:

    session = FunctionTestSession(tests, program, seed, recorded=cache.get(recording_key(tests, seed)))
    while not isinstance(step := session.next_step(), Finished):
        if isinstance(step, RunAssertions):
            session.assertions_done(await assertions.run(step.stdin, limits))   # contained child of the gateway
        else:
            session.calls_done(reply.runs[0], reply.compile)                    # sandbox, mode "calls"

1. Record (once a problem: pass `session.recording` on as `recorded`): tests against placeholders, to learn the calls.
2. Calls: all tests' calls in order in one process of the sandbox. Where the process ends in a call, that test has its
   end, and the later tests go into a fresh process.
3. Replay: the assertions with the real values. A test that makes another call goes back to 2 with all its calls,
   `MAX_ROUNDS` times at most. What a call did to the process counts only where the replay reaches that call: an
   assertion that fails before it is a wrong answer.

Time. The limits that the gateway gives a batch are those of one test. Where a batch of several tests runs past them,
the test in whose call it stopped is timed out if it was the batch's first; otherwise, all of the batch's tests run
again in batches of their own, so that none fails by another's time. CPU and wall seconds are shared out evenly.
After `stop_after_timeouts` time-outs the tests without values are time-outs that did not run.

What recording meets is the problem's fault (api_error), for no candidate was there. From then on, an assertion run that
exceeds its limits was made to by the values returned, and is that test's timeout or memory_limit. A program that
returns something else each time, so that the calls never settle, is runtime_error.
"""

import hashlib
import json
from dataclasses import dataclass, field

from evalrun_judge.call_answers import BatchAnswers, read_answers
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import AssertTests, CheckTest
from evalrun_judge.verdict import UNCONFIRMED
from evalrun_sandbox.api import CompileResult, ProgramRun

__all__ = [
    "AssertTests",
    "CheckTest",
    "Finished",
    "FunctionTestOutcome",
    "FunctionTestSession",
    "RunAssertions",
    "RunCalls",
    "recording_key",
]

MAX_ROUNDS = 8
"""Batches that one test's calls may take."""
OUTPUT_KIB = 48 * 1024
"""What calls and assertions may write: values of 16 MiB, encoded, cross."""
REASON_LIMIT = 2000
"""Characters kept of why a test failed: it may quote the program."""
FORMAT = 2
"""Of recordings; a change of the harness that makes old ones useless raises it."""


@dataclass(frozen=True, slots=True)
class RunAssertions:
    """Run the assertion harness (its `code` is unused) in a contained child, with `OUTPUT_KIB` of output."""

    stdin: bytes
    shareable: bool = False
    """It may run in one process with others, see `shared_assertions`."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run this program in the sandbox, mode `calls`, on this one input, with `OUTPUT_KIB` of output."""

    stdin: bytes
    code: str


@dataclass(frozen=True, slots=True)
class FunctionTestOutcome:
    """How one test went."""

    status: TestStatus
    ran: bool
    reason: str = ""
    input: str = ""
    """The assertion that decided, as source; where none failed, the assert or `check(entry)`."""
    expected: str = ""
    """The other side of a comparison that failed: its value, or its source where it makes calls."""
    actual: str = ""
    """What came back."""
    stdout: str = ""
    """What the test's calls printed, cut."""
    stderr: str = ""
    """Of the process, which tests may have shared."""
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    confirmed: bool = True
    """False: a time-out of a run that ended near its limit and was not run again alone."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Every test has its outcome."""

    tests: tuple[FunctionTestOutcome, ...]


@dataclass(slots=True)
class _Test:
    index: int
    source: str
    label: str
    calls: list[object] = field(default_factory=list)
    refusal: str = ""
    """Why it cannot be judged, as recording found."""
    lines: list[bytes] | None = None
    """The calls' results, as the program may have written them; None while they are wanted."""
    end: list[str] | None = None
    """Status and reason, where the process ended in the call after these."""
    timed_out: bool = False
    """The process ran out of time in one of its calls; the replay may never reach it."""
    late: bool = False
    """Every call ended, but past the limit."""
    rounds: int = 0
    alone: bool = False
    """It goes into a batch of its own."""
    earlier: list[tuple[object, bytes]] = field(default_factory=list)
    """The calls of the round before, with their results."""
    unstable: bool = False
    """The same calls gave other results in a later round."""
    run: ProgramRun | None = None
    share: int = 1
    printed: str = ""
    outcome: FunctionTestOutcome | None = None

    def given(self) -> list[bytes]:
        """Give what the calls came to, the one in which the process ended included."""
        return [*(self.lines or ()), *([json.dumps(self.end).encode()] if self.end is not None else [])]


class FunctionTestSession:
    """Judges one program against one problem's tests; see the module.

    Args:
        tests: the problem's.
        program: as it runs, with its prompt where it belongs before it.
        seed: of `random` on the assertions' side.
        recorded: an earlier session's `recording` of the same tests and seed.
        stop_after_timeouts: 0: never.
    """

    def __init__(
        self,
        tests: CheckTest | AssertTests,
        program: str,
        seed: int = 0,
        recorded: bytes | None = None,
        stop_after_timeouts: int = 3,
    ) -> None:
        self._problem = tests
        self._program = program
        self._seed = seed
        self._stop_after = stop_after_timeouts
        self._names: list[object] = []
        self._modules: list[object] = []
        self._imports = ""
        self._pure = False
        self._tests = _tests_of(tests)
        self._batch: list[_Test] = []
        self._replayed: list[_Test] = []
        self._loaded = False
        self.recording: bytes | None = None
        """The tests' calls, once recorded well: the same for every program."""
        if recorded is not None:
            self._take_recording(recorded)

    def next_step(self) -> RunAssertions | RunCalls | Finished:
        """Say what to run next."""
        while True:
            open_tests = [test for test in self._tests if test.outcome is None]
            if not open_tests:
                return Finished(tuple(test.outcome for test in self._tests if test.outcome is not None))
            if self.recording is None:
                return RunAssertions(self._header("record", open_tests), shareable=True)  # it says if it is not
            wanting = [test for test in open_tests if test.lines is None]
            if wanting and not self._stopped(open_tests):
                self._batch = wanting[:1] if wanting[0].alone else [test for test in wanting if not test.alone]
                return RunCalls(self._batch_input(), self._program)
            self._replayed = [test for test in open_tests if test.lines is not None]
            if self._replayed:
                return self._replay()
            for test in wanting:
                self._end(test, TestStatus.TIMEOUT, f"not run after {self._stop_after} time-outs", ran=False)

    def assertions_done(self, run: ProgramRun) -> None:
        """Take what the last `RunAssertions` came to."""
        if self.recording is None:
            if run.end != "exited" or run.exit_code != 0 or not self._take_recording(run.stdout):
                self._end_all(TestStatus.API_ERROR, f"the tests could not be recorded: {_why(run)}", ran=False)
            return
        lines = run.stdout.splitlines()
        for position, test in enumerate(self._replayed):
            report = _object(lines[position]) if position < len(lines) else {}
            if report.get("test") != test.index:
                self._assertions_ended(test, run)
                return  # the later ones are replayed again
            self._take_report(test, report)

    def calls_done(self, run: ProgramRun, compiled: CompileResult) -> None:
        """Take what the last `RunCalls` came to."""
        if compiled.status != "ok":
            status = TestStatus.COMPILE_ERROR if compiled.status == "error" else TestStatus.COMPILE_TIMEOUT
            self._end_all(status, "", ran=False, stderr=compiled.stderr.decode("utf-8", "replace"))
            return
        answers = read_answers(run, [(test.index, len(test.calls)) for test in self._batch])
        for test in self._batch:
            test.run, test.share = run, len(self._batch)
        if not answers.loaded:
            self._not_loaded(run, answers)
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
                status, reason = answers.end
                test.end = [status, reason]
                test.timed_out = status is TestStatus.TIMEOUT
            test.late = run.end == "timeout" and given.complete
            test.lines, test.printed = lines, given.printed
            test.unstable = test.unstable or _differ(test)
        for test in self._batch[stopped + 1 :]:
            test.alone = test.alone or run.end == "timeout"

    def _not_loaded(self, run: ProgramRun, answers: BatchAnswers) -> None:
        """The program would not load for the other tests either, unless a first batch of it did."""
        status, reason = answers.load_end or answers.end
        ended = self._batch if self._loaded else [test for test in self._tests if test.outcome is None]
        for test in ended:
            test.run, test.share = run, len(ended)
            self._end(test, status, reason)

    def _stopped(self, open_tests: list[_Test]) -> bool:
        """Whether enough time-outs have been seen, those that a replay may take back included."""
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
            "names": self._names,
            "modules": self._modules,
            "pure": self._pure,
            "tests": [[test.index, test.source, test.calls, test.end] for test in tests],
        }
        return json.dumps(header, separators=(",", ":")).encode() + b"\n"

    def _batch_input(self) -> bytes:
        tests = [[test.index, test.calls] for test in self._batch]
        return json.dumps({"imports": self._imports, "tests": tests}, separators=(",", ":")).encode()

    def _replay(self) -> RunAssertions:
        lines = [line for test in self._replayed for line in test.lines or ()]
        request = self._header("replay", self._replayed) + b"".join(line + b"\n" for line in lines)
        return RunAssertions(request, shareable=self._pure)

    def _take_recording(self, recorded: bytes) -> bool:
        """Take over names and calls; says whether the text was a recording of these tests."""
        head, *reports = [_object(line) for line in recorded.splitlines()] or [{}]
        names, modules, imports = head.get("names"), head.get("modules"), head.get("imports")
        if not isinstance(names, list) or not isinstance(modules, list) or not isinstance(imports, str):
            return False
        if len(reports) != len(self._tests):
            return False
        self._names, self._modules, self._imports = names, modules, imports
        self._pure = head.get("pure") is True
        for test, report in zip(self._tests, reports, strict=True):
            calls = report.get("calls")
            test.calls = calls if isinstance(calls, list) else []
            test.refusal = "" if isinstance(calls, list) else str(report.get("reason"))
        self.recording = recorded
        return True

    def _take_report(self, test: _Test, report: dict[str, object]) -> None:
        calls = report.get("calls")
        if isinstance(calls, list):
            self._need(test, calls)
            return
        status = TestStatus(str(report.get("status")))
        reason = str(report.get("reason"))[:REASON_LIMIT]
        if test.late and status is TestStatus.SUCCESS:
            status, reason = TestStatus.TIMEOUT, "every call ended, but past the time limit"
        given, expected, actual = (str(report.get(name) or "") for name in ("input", "expected", "actual"))
        self._end(test, status, reason, input=given, expected=expected, actual=actual)

    def _need(self, test: _Test, calls: list[object]) -> None:
        """Make another round for a test, or end it."""
        test.rounds += 1
        if test.rounds >= MAX_ROUNDS:
            if test.unstable:
                self._end(test, TestStatus.RUNTIME_ERROR, "the program returns something else each time it is called")
            else:
                self._end(test, TestStatus.API_ERROR, f"the test's calls are not known after {MAX_ROUNDS} rounds")
            return
        test.earlier = list(zip(test.calls, test.given(), strict=False))
        test.calls, test.lines, test.end, test.timed_out, test.late = calls, None, None, False, False

    def _assertions_ended(self, test: _Test, run: ProgramRun) -> None:
        """The child ended in this test's replay: its doing, where the values made it exceed a limit."""
        match run.end:
            case "timeout":
                self._end(
                    test, TestStatus.TIMEOUT, "comparing what the program returned ran past the time limit", by=run
                )
            case "memory_limit":
                self._end(test, TestStatus.MEMORY_LIMIT, "comparing what the program returned ran out of memory")
            case _:
                self._end(test, TestStatus.API_ERROR, f"the assertions ended early: {_why(run)}")

    def _end_all(self, status: TestStatus, reason: str, *, ran: bool, stderr: str = "") -> None:
        for test in self._tests:
            if test.outcome is None:
                self._end(test, status, reason, ran=ran)
                if stderr and test.outcome is not None:
                    test.outcome = FunctionTestOutcome(status, ran, reason, input=test.label, stderr=stderr)

    def _end(
        self,
        test: _Test,
        status: TestStatus,
        reason: str,
        *,
        ran: bool = True,
        by: ProgramRun | None = None,
        input: str = "",  # noqa: A002 - the record's own name
        expected: str = "",
        actual: str = "",
    ) -> None:
        """Give a test its outcome; `by` is the run that decided it, where that is not the one of its calls."""
        run = test.run
        decided = by or run
        confirmed = status is not TestStatus.TIMEOUT or not ran or decided is None or decided.confirmed
        if not confirmed and UNCONFIRMED not in reason:
            reason = f"{reason}; {UNCONFIRMED}" if reason else UNCONFIRMED
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
            confirmed=confirmed,
        )


def recording_key(tests: CheckTest | AssertTests, seed: int) -> str:
    """Give the name under which a recording of these tests may be kept: the same for every program."""
    parts: list[object] = [FORMAT, seed, type(tests).__name__, tests.entry_point]
    if isinstance(tests, CheckTest):
        parts += [tests.prompt, tests.test]
    else:
        parts += [tests.setup_code, list(tests.asserts)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _tests_of(tests: CheckTest | AssertTests) -> list[_Test]:
    if isinstance(tests, CheckTest):
        return [_Test(0, tests.test, f"check({tests.entry_point})")]
    return [_Test(index, source, source) for index, source in enumerate(tests.asserts)]


def _differ(test: _Test) -> bool:
    """Say whether calls of the round before gave something else this time."""
    for call, (earlier_call, earlier_line), line in zip(test.calls, test.earlier, test.given(), strict=False):
        if call != earlier_call:
            return False
        if line != earlier_line:
            return True
    return False


def _object(line: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _why(run: ProgramRun) -> str:
    """Give one line about an assertion run that did not end well."""
    last = run.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
    return last or f"{run.end}, exit code {run.exit_code}"
