"""Derives verdicts from runs: statuses, pass_ratio, final_status. Pure.

An infrastructure failure is never a verdict: a test that could not be judged is `api_error`, and a problem with such a
test and no failed test is not judged at all.
"""

import signal
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from evalrun_executor.api import QUIET_SLOWNESS, CompileResult, Level, ProgramRun
from evalrun_judge.comparators import find_disagreeing_comparators, passes, rests_on
from evalrun_judge.extraction import Extraction, ExtractionMethod, Guardrail
from evalrun_judge.status import ForgeableCause, TestCause, TestStatus
from evalrun_registry.comparators import COMPARATORS, Comparator, Leniency

UNCONFIRMED = "not enough CPU to tell: near the limit, or short of CPU, and no run alone decided"
"""Reason of a run past a limit that is not certainly a timeout: another run might end in time."""
BY_WALL = "stopped by the server's wall clock"
"""The reason of a timeout on a stock server, which measures no CPU time."""

ASSUMED = "enough other tests had timed out, and it did not end within the short limit"
"""The reason of an assumed timeout."""

KEPT_BYTES = 2048
"""Maximum bytes of each text of a test's record, which also has the full length."""


class FinalStatus(StrEnum):
    """A problem's status, in the order of precedence after `success`."""

    SUCCESS = "success"
    EMPTY_OUTPUT = "empty_output"
    SYNTAX_ERROR = "syntax_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    WRONG_ANSWER = "wrong_answer"
    API_ERROR = "api_error"


_FINAL_OF = {
    TestStatus.COMPILE_ERROR: FinalStatus.SYNTAX_ERROR,
    TestStatus.COMPILE_TIMEOUT: FinalStatus.SYNTAX_ERROR,
    TestStatus.RUNTIME_ERROR: FinalStatus.RUNTIME_ERROR,
    TestStatus.MEMORY_LIMIT: FinalStatus.RUNTIME_ERROR,
    TestStatus.TIMEOUT: FinalStatus.TIMEOUT,
    TestStatus.ASSUMED_TIMEOUT: FinalStatus.TIMEOUT,
    TestStatus.WRONG_ANSWER: FinalStatus.WRONG_ANSWER,
    TestStatus.API_ERROR: FinalStatus.API_ERROR,
    TestStatus.SUCCESS: FinalStatus.SUCCESS,
}

_PRECEDENCE = tuple(status for status in FinalStatus if status is not FinalStatus.SUCCESS)


class CutText(msgspec.Struct, frozen=True, gc=False):
    """A text cut for storage.

    `CutText`, `TestRecord` and `TestOutcome` are structs, not dataclasses: a test has eight of them, and creating a
    frozen dataclass takes five times as long.
    """

    text: str = ""
    full_length: int = 0
    """Length in bytes."""


NO_TEXT = CutText()


class TestRecord(msgspec.Struct, frozen=True, gc=False):
    """Outcome of a test."""

    # pytest collects classes called Test*.
    __test__ = False

    case_index: int
    status: TestStatus
    ran: bool
    input: CutText = NO_TEXT
    expected_output: CutText = NO_TEXT
    stdout: CutText = NO_TEXT
    stderr: CutText = NO_TEXT
    exit_code: int | None = None
    duration: float = 0.0
    """Wall seconds."""
    cpu_time: float = 0.0
    """CPU seconds of the run that decided."""
    compile_duration: float = 0.0
    compile_stderr: CutText = NO_TEXT
    reason: str = ""
    """Explanation in one line, if the texts do not show the reason."""
    confirmed: bool = True
    """False: the run went past its limit, and no run was sure: another run might decide otherwise."""
    disagreeing: tuple[str, ...] = ()
    """Comparators that would have decided otherwise."""
    permanent: bool = False
    """An api_error that no other attempt would change."""
    rests_on: tuple[Leniency, ...] = ()
    """Leniencies without which a passed test would have failed."""
    cause: TestCause | None = None
    missing_module: str = ""
    """Package that Python did not find, if that ended the test or the program."""
    forgeable: ForgeableCause | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The judge's decision about a submission."""

    final_status: FinalStatus
    judged: bool
    accepted: bool
    pass_ratio: float | None
    """passed / tests; None if a test could not be judged, or not every test was run."""
    pass_ratio_high: float | None
    """The same ratio if every assumed timeout had passed."""
    assumed_timeouts: int
    """Tests that were stopped at the short limit, and counted as failed."""
    tests: Sequence[TestRecord]
    code: str
    extraction: ExtractionMethod
    guardrails: tuple[Guardrail, ...]
    containment_level: Level
    """The lowest level at which any part ran."""
    disagreeing: tuple[str, ...] = ()
    queue_seconds: float = 0.0
    cached: bool = False
    """Whether the verdict comes from the cache; times are the original's."""
    permanent: bool = False
    """Whether the completion would stay not judged in any other attempt."""
    forgeable: ForgeableCause | None = None
    """Why the candidate could have forged the verdict; None: it could not."""
    rests_on: tuple[Leniency, ...] = ()
    """Leniencies without which an accepted completion would have failed: such completions show whether the rule is
    right."""


class TestOutcome(msgspec.Struct, frozen=True, gc=False):
    """A status with its reason."""

    # pytest collects classes called Test*.
    __test__ = False

    status: TestStatus
    reason: str = ""
    disagreeing: tuple[str, ...] = ()
    permanent: bool = False
    """An api_error that no other attempt would change."""
    rests_on: tuple[Leniency, ...] = ()
    """Leniencies without which a passed test would have failed."""
    cause: TestCause | None = None


PASSED = TestOutcome(TestStatus.SUCCESS)
"""The outcome of a test that passed by every comparator."""


def cut_text(text: bytes, kept: int = KEPT_BYTES) -> CutText:
    """Keep the first `kept` bytes of a text without splitting a character. Bytes that are not UTF-8 become U+FFFD."""
    if len(text) <= kept:
        return CutText(text.decode("utf-8", "replace"), len(text)) if text else NO_TEXT
    end = kept
    # A character has at most three continuation bytes.
    for _ in range(3):
        if end > 0 and text[end] & 0xC0 == 0x80:
            end -= 1
    return CutText(text[:end].decode("utf-8", "replace"), len(text))


def compile_status(result: CompileResult) -> TestStatus | None:
    """Return the status of every test of a program that did not compile; None if it compiled."""
    match result.status:
        case "error":
            return TestStatus.COMPILE_ERROR
        case "timeout":
            return TestStatus.COMPILE_TIMEOUT
    return None


def find_failure(run: ProgramRun) -> TestOutcome | None:
    """Return the failure of a run regardless of its output, or None if the output decides."""
    if run.end == "exited":
        return None if run.exit_code == 0 else _classify_exit(run)
    match run.end:
        case "timeout":
            if not run.confirmed and run.measured:
                return TestOutcome(TestStatus.API_ERROR, UNCONFIRMED, cause=TestCause.UNCONFIRMED)
            return TestOutcome(TestStatus.TIMEOUT, explain_slowness(run) if run.measured else BY_WALL)
        case "not_run":
            return TestOutcome(TestStatus.ASSUMED_TIMEOUT, ASSUMED)
        case "memory_limit":
            return TestOutcome(TestStatus.MEMORY_LIMIT)
        case "output_limit":
            return TestOutcome(TestStatus.RUNTIME_ERROR, "printed more than the output limit")
    raise ValueError(f"unknown end of a run: {run.end}")


def explain_slowness(run: ProgramRun) -> str:
    """Return the reason of a timeout on a slow machine; empty for other outcomes."""
    if run.slowness <= QUIET_SLOWNESS:
        return ""
    return f"{run.cpu_seconds:.2f} s of CPU, on a machine {run.slowness:.1f} times slower than at its best"


def _classify_exit(run: ProgramRun) -> TestOutcome:
    if run.exit_code is None:
        return TestOutcome(TestStatus.API_ERROR, "the sandbox did not say how the program ended")
    if _out_of_memory(run):
        return TestOutcome(TestStatus.MEMORY_LIMIT)
    if run.exit_code > 0:
        return TestOutcome(TestStatus.RUNTIME_ERROR, f"exit code {run.exit_code}")
    return TestOutcome(TestStatus.RUNTIME_ERROR, f"ended by {_signal_name(-run.exit_code)}")


def _out_of_memory(run: ProgramRun) -> bool:
    """Return whether memory ran out: Python raises MemoryError, C++ aborts after naming std::bad_alloc."""
    last_line = run.stderr.rstrip().rpartition(b"\n")[2]
    return last_line.startswith(b"MemoryError") or (
        run.exit_code == -signal.SIGABRT and b"std::bad_alloc" in run.stderr
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def stdio_outcome(run: ProgramRun, expected: bytes, comparator: Comparator) -> TestOutcome:
    """Judge a run of a stdin/stdout test with a comparator."""
    failure = find_failure(run)
    if failure is not None:
        return failure
    passed = passes(expected, run.stdout, comparator)
    if passed and expected == run.stdout:
        return PASSED
    others = find_disagreeing_comparators(expected, run.stdout, comparator, passed)
    if not passed:
        return TestOutcome(TestStatus.WRONG_ANSWER, "", others)
    return TestOutcome(TestStatus.SUCCESS, "", others, rests_on=rests_on(expected, run.stdout, comparator))


def final_status(statuses: Sequence[TestStatus]) -> FinalStatus:
    """Return the problem's status: success if every test passed, else the first in precedence over its tests."""
    found = {_FINAL_OF[status] for status in set(statuses)}
    return next((status for status in _PRECEDENCE if status in found), FinalStatus.SUCCESS)


def make_verdict(
    tests: Sequence[TestRecord],
    extraction: Extraction,
    level: Level,
    queue_seconds: float,
    *,
    cached: bool = False,
    complete: bool = True,
    forgeable: ForgeableCause | None = None,
) -> Verdict:
    """Sum up the tests' records.

    Args:
        tests: records in order.
        extraction: the program that was found.
        level: the lowest level at which any part ran.
        queue_seconds: time in the queue.
        cached: whether the verdict comes from the cache.
        complete: False if a test has failed and there may be further tests.
        forgeable: why the candidate could have forged the verdict, besides the reasons in the records.

    Raises:
        ValueError: there are no tests, from which no verdict follows.
    """
    if not tests:
        raise ValueError("a verdict needs at least one test")
    empty = extraction.method is ExtractionMethod.NONE
    statuses = [test.status for test in tests]
    unknown = statuses.count(TestStatus.API_ERROR)
    passed = statuses.count(TestStatus.SUCCESS)
    assumed = statuses.count(TestStatus.ASSUMED_TIMEOUT)
    accepted = passed == len(tests) and not empty
    rated = not unknown and complete
    judged = unknown == 0 or passed + unknown < len(tests)
    return Verdict(
        final_status=FinalStatus.EMPTY_OUTPUT if empty else final_status(statuses),
        judged=judged,
        accepted=accepted,
        pass_ratio=passed / len(tests) if rated else None,
        pass_ratio_high=(passed + assumed) / len(tests) if rated else None,
        assumed_timeouts=assumed,
        tests=tests,
        code=extraction.code,
        extraction=extraction.method,
        guardrails=extraction.guardrails,
        containment_level=level,
        disagreeing=_problem_disagreements(tests, accepted),
        queue_seconds=queue_seconds,
        cached=cached,
        permanent=not judged and any(test.permanent for test in tests),
        forgeable=forgeable or next((test.forgeable for test in tests if test.forgeable is not None), None),
        rests_on=tuple(each for each in Leniency if any(each in test.rests_on for test in tests)) if accepted else (),
    )


def _problem_disagreements(tests: Sequence[TestRecord], accepted: bool) -> tuple[str, ...]:
    """Name the comparators under which the problem's acceptance would have been the opposite."""
    if accepted:
        named = {name for test in tests for name in test.disagreeing}
        if not named:
            return ()
    else:
        failed = [set(test.disagreeing) for test in tests if test.status is not TestStatus.SUCCESS]
        passed_by_all = set(COMPARATORS).intersection(*failed)
        named = passed_by_all.difference(*(test.disagreeing for test in tests if test.status is TestStatus.SUCCESS))
    return tuple(name for name in COMPARATORS if name in named)
