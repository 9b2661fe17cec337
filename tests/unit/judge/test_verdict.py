"""The status algebra: what runs say, what problems get."""

import signal

import pytest

from evalrun_executor.api import ProgramRun
from evalrun_judge.extraction import Extraction, ExtractionMethod, Guardrail
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import (
    FinalStatus,
    TestOutcome,
    TestRecord,
    cut_text,
    find_failure,
    make_verdict,
    stdio_outcome,
)
from evalrun_registry.comparators import Comparator, Leniency

OK, WRONG, CRASH, TIME, MEMORY, SYNTAX, UNKNOWN = (
    TestStatus.SUCCESS, TestStatus.WRONG_ANSWER, TestStatus.RUNTIME_ERROR, TestStatus.TIMEOUT, TestStatus.MEMORY_LIMIT,
    TestStatus.COMPILE_ERROR, TestStatus.API_ERROR,
)  # fmt: skip

CODE = Extraction("print(1)", ExtractionMethod.VERBATIM)

# how it ended, what comes of it where "1" was expected
RUNS: list[tuple[ProgramRun, TestStatus]] = [
    (ProgramRun("exited", 0, b"1\n"), OK),
    (ProgramRun("exited", 0, b"2\n"), WRONG),
    (ProgramRun("exited", 1, b"1\n"), CRASH),  # exit(1) after the answer
    (ProgramRun("exited", -signal.SIGSEGV, b"1\n"), CRASH),
    (ProgramRun("exited", -100, b"1\n"), CRASH),
    (ProgramRun("timeout", None, b"1\n"), TIME),
    (ProgramRun("timeout", None, b"1\n", confirmed=False), UNKNOWN),
    (ProgramRun("timeout", None, b"1\n", confirmed=False, measured=False), TIME),
    (ProgramRun("not_run"), TestStatus.ASSUMED_TIMEOUT),
    (ProgramRun("memory_limit", None, b"1\n"), MEMORY),
    (ProgramRun("exited", 1, b"", b"Traceback ...\nMemoryError\n"), MEMORY),
    (ProgramRun("exited", 1, b"", b"Traceback ...\nMemoryError: cannot allocate\n"), MEMORY),
    (ProgramRun("exited", 1, b"", b"MemoryError\nValueError: no\n"), CRASH),
    (ProgramRun("exited", -signal.SIGABRT, b"", b"terminate called after throwing 'std::bad_alloc'\n"), MEMORY),
    (ProgramRun("exited", -signal.SIGABRT, b"", b"assertion failed\n"), CRASH),
    (ProgramRun("output_limit", None, b"1\n"), CRASH),
    (ProgramRun("exited", None, b"1\n"), UNKNOWN),
]


def test_timeout_on_a_slow_machine_names_the_slowness() -> None:
    slow = ProgramRun("timeout", cpu_seconds=3.25, slowness=2.0)
    outcome = find_failure(slow)
    assert outcome is not None
    assert outcome.reason == "3.25 s of CPU, on a machine 2.0 times slower than at its best"
    assert find_failure(ProgramRun("timeout", cpu_seconds=3.25, slowness=1.1)) == TestOutcome(TIME)


@pytest.mark.parametrize(("run", "status"), RUNS)
def test_end_of_a_run_decides_the_status_of_its_test(run: ProgramRun, status: TestStatus) -> None:
    outcome = stdio_outcome(run, b"1", Comparator())
    assert outcome.status is status
    if status is not OK and status is not WRONG:
        assert outcome.disagreeing == ()  # no comparator can fix it


def test_output_past_the_cap_names_its_reason() -> None:
    assert "output limit" in stdio_outcome(ProgramRun("output_limit", None, b"1"), b"1", Comparator()).reason


# the tests' statuses -> final_status, judged, pass_ratio
PROBLEMS: list[tuple[list[TestStatus], FinalStatus, bool, float | None]] = [
    ([OK, OK], FinalStatus.SUCCESS, True, 1.0),
    ([OK, WRONG], FinalStatus.WRONG_ANSWER, True, 0.5),
    ([WRONG, TIME], FinalStatus.TIMEOUT, True, 0.0),
    ([TIME, CRASH, WRONG], FinalStatus.RUNTIME_ERROR, True, 0.0),
    ([MEMORY, TIME], FinalStatus.RUNTIME_ERROR, True, 0.0),
    ([SYNTAX, SYNTAX], FinalStatus.SYNTAX_ERROR, True, 0.0),
    ([TestStatus.COMPILE_TIMEOUT], FinalStatus.SYNTAX_ERROR, True, 0.0),
    ([OK, UNKNOWN], FinalStatus.API_ERROR, False, None),  # nothing failed: the judge cannot tell
    ([UNKNOWN], FinalStatus.API_ERROR, False, None),
    ([UNKNOWN, WRONG, OK], FinalStatus.WRONG_ANSWER, True, None),  # one failed: judged, whatever the other is
]


@pytest.mark.parametrize(("statuses", "final", "judged", "ratio"), PROBLEMS)
def test_make_verdict_derives_final_status_and_pass_ratio_from_the_tests(
    statuses: list[TestStatus], final: FinalStatus, judged: bool, ratio: float | None
) -> None:
    verdict = make_verdict([TestRecord(i, status, ran=True) for i, status in enumerate(statuses)], CODE, "full", 0.0)
    assert (verdict.final_status, verdict.judged, verdict.pass_ratio) == (final, judged, ratio)
    assert verdict.accepted is (final is FinalStatus.SUCCESS)


def test_answer_without_a_program_is_empty_output_with_ratio_zero() -> None:
    nothing = Extraction("", ExtractionMethod.NONE, (Guardrail.NOTHING_TO_RUN,))
    verdict = make_verdict([TestRecord(0, SYNTAX, ran=False)], nothing, "full", 0.0)
    assert (verdict.final_status, verdict.judged, verdict.accepted, verdict.pass_ratio) == (
        FinalStatus.EMPTY_OUTPUT, True, False, 0.0,
    )  # fmt: skip


def test_make_verdict_without_tests_raises_value_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        make_verdict([], CODE, "full", 0.0)


# each test: its status and who disagrees -> who disagrees about the problem
EXACT, VERL = "exact", "verl"
DISAGREEMENTS: list[tuple[list[tuple[TestStatus, tuple[str, ...]]], tuple[str, ...]]] = [
    ([(OK, ()), (OK, (EXACT,))], (EXACT,)),
    ([(OK, (EXACT,)), (OK, (VERL,))], (EXACT, VERL)),
    ([(WRONG, (VERL, EXACT)), (WRONG, (VERL,))], (VERL,)),
    ([(WRONG, (VERL,)), (WRONG, ())], ()),  # the second would fail there too
    ([(WRONG, (VERL,)), (OK, (VERL,))], ()),  # rejected either way
    ([(WRONG, (VERL,)), (TIME, ())], ()),  # no comparator mends a timeout
    ([(OK, ()), (UNKNOWN, ())], ()),
]


@pytest.mark.parametrize(("tests", "named"), DISAGREEMENTS)
def test_verdict_names_comparators_that_would_decide_the_problem_differently(
    tests: list[tuple[TestStatus, tuple[str, ...]]], named: tuple[str, ...]
) -> None:
    records = [TestRecord(i, status, ran=True, disagreeing=others) for i, (status, others) in enumerate(tests)]
    assert make_verdict(records, CODE, "full", 0.0).disagreeing == named


@pytest.mark.parametrize(
    ("data", "kept", "text"),
    [
        (b"abc", 3, "abc"),
        (b"abcd", 3, "abc"),
        ("aéb".encode(), 2, "a"),  # é is not split
        ("a😀".encode(), 4, "a"),
        ("a😀".encode(), 5, "a😀"),
        (b"a\xffb", 9, "a\ufffdb"),
        (b"\x80\x80\x80\x80\x80", 4, "\ufffd"),
        (b"", 3, ""),
    ],
)
def test_texts_are_cut_between_characters(data: bytes, kept: int, text: str) -> None:
    cut = cut_text(data, kept)
    assert (cut.text, cut.full_length) == (text, len(data))


@pytest.mark.parametrize(
    ("printed", "rests_on"),
    [
        ([b"Yes", b"0.5"], ()),
        ([b"YES", b"0.5"], (Leniency.CASE,)),
        ([b"YES", b"0.50000001"], (Leniency.CASE, Leniency.TOLERANCE)),
        ([b"YES", b"0.6"], ()),
    ],
)
def test_verdict_names_leniencies_of_an_accepted_problem_only(
    printed: list[bytes], rests_on: tuple[Leniency, ...]
) -> None:
    """Of a rejected one nothing is said: it is not accepted by anything."""
    rule = Comparator(case_sensitive=False)
    tests = []
    for number, (expected, stdout) in enumerate(zip([b"Yes", b"0.5"], printed, strict=True)):
        outcome = stdio_outcome(ProgramRun("exited", 0, stdout), expected, rule)
        tests.append(TestRecord(number, outcome.status, ran=True, rests_on=outcome.rests_on))
    assert make_verdict(tests, CODE, "full", 0.0).rests_on == rests_on
