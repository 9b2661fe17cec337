"""The session's decisions, with scripted runs: batches after a process that ended, timeouts, rounds, recordings."""

import json
from collections.abc import Callable, Sequence

import msgspec
import pytest
from builders.judge.function_tests import COMPILED, request_of

from evalrun_executor.api import CompileResult, End, ProgramRun
from evalrun_judge.function_tests.session import (
    MAX_UNSETTLED,
    ROUND_SECONDS,
    AssertTests,
    CheckTest,
    Finished,
    FunctionTestSession,
    RunAssertions,
    RunCalls,
    recording_key,
)
from evalrun_judge.status import TestCause, TestStatus

CALL = ["f", [1], {"d": []}]
TIMEOUT = ProgramRun("timeout", cpu_seconds=12.0, wall_seconds=13.0)


def asserts(count: int) -> AssertTests:
    return AssertTests([f"assert f({n})" for n in range(count)], "", "f")


def recording(calls: Sequence[Sequence[object]]) -> bytes:
    head = {"names": [], "modules": [], "imports": ""}
    return b"".join(
        json.dumps(line).encode() + b"\n"
        for line in [head, *({"test": index, "calls": made} for index, made in enumerate(calls))]
    )


def session_of(count: int, *, stop_after_timeouts: int = 3) -> FunctionTestSession:
    recorded = recording([[CALL]] * count)
    return FunctionTestSession(asserts(count), "code", 0, recorded, stop_after_timeouts)


def answers(*tests: int, end: End = "exited", code: int | None = 0) -> ProgramRun:
    lines = ["load V null", *(f"{test} 0 V [1,null]" for test in tests)]
    text = "\n".join(lines) + "\n"
    return ProgramRun(end, code if end == "exited" else None, text.encode(), b"said", 1.5, 2.0)


def batch(session: FunctionTestSession, *, short: bool = False) -> list[int]:
    step = session.next_step()
    assert isinstance(step, RunCalls), step
    assert step.short == short
    tests = request_of(step.stdin)["tests"]
    assert isinstance(tests, list)
    return [test for test, _ in tests]


def replayed(session: FunctionTestSession) -> dict[int, str]:
    """The tests of the next replay, with the kind of their last result: `D` where the process ended."""
    step = session.next_step()
    assert isinstance(step, RunAssertions), step
    head, *lines = step.stdin.decode().splitlines()
    assert json.loads(head)["mode"] == "replay"
    kinds = {int(line.split()[0]): line.split()[2] for line in lines}
    return kinds | {test: "D" for test, _, _, end in json.loads(head)["tests"] if end is not None}


def last_end(step: object) -> object:
    """Why the process ended in a call of a replay's last test."""
    assert isinstance(step, RunAssertions), step
    return json.loads(step.stdin.splitlines()[0])["tests"][-1][3]


def report(session: FunctionTestSession, reason: str = "", cause: str = "", **statuses: str) -> None:
    """Answer a replay: `t0="success"`."""
    lines = [
        json.dumps({"test": int(name[1:]), "status": status, "reason": reason, "cause": cause})
        for name, status in statuses.items()
    ]
    session.assertions_done(ProgramRun("exited", 0, "\n".join(lines).encode() + b"\n"))


def finish(session: FunctionTestSession) -> list[str]:
    step = session.next_step()
    assert isinstance(step, Finished), step
    return [f"{test.status}{'' if test.ran else ' (not run)'}" for test in step.tests]


def late_call(session: FunctionTestSession, run: ProgramRun) -> None:
    """The process ends in the only test's call, and the replay reaches that call."""
    session.next_step()
    session.calls_done(run, COMPILED)
    session.next_step()
    if run.confirmed:
        report(session, t0="timeout")
    else:
        report(session, t0="api_error", reason="any words", cause="unconfirmed")


def late_load(session: FunctionTestSession, run: ProgramRun) -> None:
    session.next_step()
    session.calls_done(msgspec.structs.replace(run, stdout=b""), COMPILED)


def late_end(session: FunctionTestSession, run: ProgramRun) -> None:
    """Every call was answered, and the process ended past its limit."""
    session.next_step()
    session.calls_done(msgspec.structs.replace(run, stdout=answers(0).stdout), COMPILED)
    session.next_step()
    report(session, t0="success")


def late_comparison(session: FunctionTestSession, run: ProgramRun) -> None:
    session.next_step()
    session.calls_done(answers(0), COMPILED)
    session.next_step()
    session.assertions_done(msgspec.structs.replace(run, stdout=b""))


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("script", [late_call, late_load, late_end, late_comparison])
def test_run_past_its_limit_is_a_timeout_only_if_confirmed(
    script: Callable[[FunctionTestSession, ProgramRun], None], confirmed: bool
) -> None:
    session = session_of(1)
    script(session, ProgramRun("timeout", None, answers().stdout, cpu_seconds=10.5, confirmed=confirmed))
    step = session.next_step()
    assert isinstance(step, Finished)
    (test,) = step.tests
    assert test.status is (TestStatus.TIMEOUT if confirmed else TestStatus.API_ERROR)
    assert test.cause is (None if confirmed else TestCause.UNCONFIRMED)
    assert not test.permanent


def test_failed_assertion_with_an_unconfirmed_end_is_a_wrong_answer() -> None:
    session = session_of(1)
    batch(session)
    session.calls_done(msgspec.structs.replace(answers(end="timeout"), confirmed=False), COMPILED)
    replayed(session)
    report(session, t0="wrong_answer")
    step = session.next_step()
    assert isinstance(step, Finished)
    assert step.tests[0].status is TestStatus.WRONG_ANSWER


def test_one_batch_and_one_replay_for_a_program_that_answers() -> None:
    session = session_of(3)
    assert batch(session) == [0, 1, 2]
    session.calls_done(answers(0, 1, 2), COMPILED)
    assert replayed(session) == {0: "V", 1: "V", 2: "V"}
    report(session, t0="success", t1="wrong_answer", t2="success")
    assert finish(session) == ["success", "wrong_answer", "success"]


def test_seconds_are_shared_out_over_the_tests_of_a_batch() -> None:
    session = session_of(3)
    batch(session)
    session.calls_done(answers(0, 1, 2), COMPILED)
    replayed(session)
    report(session, t0="success", t1="success", t2="success")
    step = session.next_step()
    assert isinstance(step, Finished)
    assert [(test.cpu_seconds, round(test.wall_seconds, 3)) for test in step.tests] == [(0.5, 0.667)] * 3
    assert [test.stderr for test in step.tests] == ["said"] * 3


def test_tests_after_an_ended_process_run_in_a_fresh_process() -> None:
    session = session_of(4)
    assert batch(session) == [0, 1, 2, 3]
    session.calls_done(answers(0, code=1), COMPILED)
    assert batch(session) == [2, 3]
    session.calls_done(answers(2, code=-11), COMPILED)
    step = session.next_step()
    assert last_end(step) == ["runtime_error", "the program was ended by signal 11", ""]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("timeout", "timeout"),
        ("memory_limit", "memory_limit"),
        ("output_limit", "runtime_error"),
        ("not_run", "api_error"),
    ],
)
def test_end_of_the_process_becomes_the_result_of_its_call(end: End, status: str) -> None:
    session = session_of(1)
    batch(session)
    session.calls_done(answers(end=end), COMPILED)
    told = last_end(session.next_step())
    assert isinstance(told, list)
    assert told[0] == status


def test_timeout_in_the_first_test_of_a_batch_is_final_and_the_others_run_alone() -> None:
    session = session_of(3)
    batch(session)
    session.calls_done(answers(end="timeout"), COMPILED)
    assert batch(session) == [1]
    session.calls_done(answers(1), COMPILED)
    assert batch(session) == [2]
    session.calls_done(answers(2), COMPILED)
    assert replayed(session) == {0: "D", 1: "V", 2: "V"}


def test_timeout_in_a_later_test_of_a_batch_makes_each_test_run_alone() -> None:
    session = session_of(3)
    batch(session)
    session.calls_done(answers(0, end="timeout"), COMPILED)
    for test in range(3):
        assert batch(session) == [test]
        session.calls_done(answers(test), COMPILED)
    assert replayed(session) == {0: "V", 1: "V", 2: "V"}


def test_calls_that_all_ended_but_past_the_limit_are_a_timeout() -> None:
    session = session_of(1)
    batch(session)
    session.calls_done(answers(0, end="timeout"), COMPILED)
    replayed(session)
    report(session, t0="success")
    assert finish(session) == ["timeout"]


def test_after_enough_time_outs_the_other_tests_run_with_the_short_limit() -> None:
    session = session_of(6, stop_after_timeouts=3)
    assert batch(session) == [0, 1, 2, 3, 4, 5]
    session.calls_done(answers(end="timeout"), COMPILED)
    for test in (1, 2):
        assert batch(session) == [test]
        session.calls_done(answers(end="timeout"), COMPILED)
    assert replayed(session) == {0: "D", 1: "D", 2: "D"}
    report(session, t0="timeout", t1="timeout", t2="timeout")
    for test, end in ((3, "timeout"), (4, "exited"), (5, "timeout")):
        assert batch(session, short=True) == [test]
        session.calls_done(answers(end="timeout") if end == "timeout" else answers(test), COMPILED)
        if end == "exited":
            replayed(session)
            report(session, t4="success")
    assert finish(session) == ["timeout"] * 3 + ["assumed_timeout", "success", "assumed_timeout"]


def test_timeouts_that_the_replay_does_not_reach_do_not_stop_other_tests() -> None:
    session = session_of(5, stop_after_timeouts=2)
    batch(session)
    session.calls_done(answers(end="timeout"), COMPILED)
    assert batch(session) == [1]
    session.calls_done(answers(end="timeout"), COMPILED)
    replayed(session)
    report(session, t0="wrong_answer", t1="timeout")
    for test in (2, 3):
        assert batch(session) == [test]
        session.calls_done(answers(test), COMPILED)
    assert batch(session) == [4]


def test_stop_after_timeouts_zero_runs_every_test() -> None:
    session = session_of(4, stop_after_timeouts=0)
    batch(session)
    session.calls_done(answers(end="timeout"), COMPILED)
    for test in (1, 2, 3):
        assert batch(session) == [test]
        session.calls_done(answers(end="timeout"), COMPILED)
    assert set(replayed(session).values()) == {"D"}


def test_a_program_that_does_not_load_fails_every_test_at_once() -> None:
    session = session_of(3)
    batch(session)
    text = b'load E {"type":"SystemExit","base":"SystemExit","args":{"t":[0]},"message":"0"}\n'
    session.calls_done(ProgramRun("exited", 0, text), COMPILED)
    step = session.next_step()
    assert isinstance(step, Finished)
    assert {(test.status, test.ran, test.reason) for test in step.tests} == {
        ("runtime_error", True, "the program called sys.exit(0) while it was loaded")
    }


@pytest.mark.parametrize(
    ("status", "test_status"), [("error", "compile_error (not run)"), ("timeout", "compile_timeout (not run)")]
)
def test_a_program_that_does_not_compile_fails_every_test(status: str, test_status: str) -> None:
    session = session_of(2)
    batch(session)
    compiled = CompileResult("error" if status == "error" else "timeout", 0.1, b"line 1")
    session.calls_done(ProgramRun("not_run"), compiled)
    assert finish(session) == [test_status] * 2


@pytest.mark.parametrize(
    "text",
    [
        b"load V null\n1 0 V [1,null]\n",
        b"load V null\n0 1 V [1,null]\n",
        b"load V null\n0 0 X [1,null]\n",
        b"load V null\nend\n",
        b"load V null\n0 0  V [1,null]\n",
        b"load V null\n00 0 V [1,null]\n",
        b"load V null\n\n0 0 V [1,null]\n",
        b"load V null\n0 0 D [\"success\",\"\"]\n",
        b"load V null\n0 0 V [1,null]\r0 0 D [\"success\",\"\"]\n",
        b"load V null\n0 0 V [\"\xc3\xa9\",null]\n",
        b"load V null\n0 0 P \"a\"\n0 0 P \"b\"\n0 0 V [1,null]\n",
    ],
)  # fmt: skip
def test_unexpected_lines_of_the_program_are_a_runtime_error(text: bytes) -> None:
    session = session_of(1)
    batch(session)
    session.calls_done(ProgramRun("exited", 0, text), COMPILED)
    step = session.next_step()
    assert last_end(step) == ["runtime_error", "the program wrote into the judge's channel", ""]


@pytest.mark.parametrize(
    "text", [b"", b"load V nul\n", b"load E {\n", b"load E [1]\n", b"\xff\n", b"load E " + b"[" * 99999]
)
def test_malformed_load_report_is_a_runtime_error(text: bytes) -> None:
    session = session_of(1)
    batch(session)
    session.calls_done(ProgramRun("exited", 0, text), COMPILED)
    assert finish(session) == ["runtime_error"]


def test_a_test_that_needs_more_calls_gets_them_all_again_in_a_fresh_process() -> None:
    session = session_of(2)
    batch(session)
    session.calls_done(answers(0, 1), COMPILED)
    replayed(session)
    more = {"test": 0, "calls": [CALL, ["f", [2], {"d": []}]]}
    done = {"test": 1, "status": "success", "reason": ""}
    session.assertions_done(ProgramRun("exited", 0, f"{json.dumps(more)}\n{json.dumps(done)}\n".encode()))
    step = session.next_step()
    assert isinstance(step, RunCalls)
    assert request_of(step.stdin)["tests"] == [[0, more["calls"]]]


def another_round(session: FunctionTestSession, number: int, *, stable: bool, longer: bool) -> None:
    """A batch, and a replay that needs other calls; `longer`: one more than before."""
    assert batch(session) == [0]
    known = number + 1 if longer else 1
    lines = "".join(f"0 {call} V [{0 if stable else number},null]\n" for call in range(known))
    run = ProgramRun("exited", 0, f"load V null\n{lines}end\n".encode(), wall_seconds=0.5)
    session.calls_done(run, COMPILED)
    replayed(session)
    calls = [CALL] + ([["f", [call], {"d": []}] for call in range(1, number + 2)] if longer else [])
    session.assertions_done(
        ProgramRun("exited", 0, json.dumps({"test": 0, "calls": calls}).encode() + b"\n", wall_seconds=0.5)
    )


def test_dependent_calls_are_repeated_until_their_time_is_spent() -> None:
    session = session_of(1)
    for number in range(int(ROUND_SECONDS)):
        another_round(session, number, stable=True, longer=True)
    assert finish(session) == ["timeout"]


def test_program_whose_calls_never_settle_is_a_runtime_error() -> None:
    session = session_of(1)
    for number in range(MAX_UNSETTLED + 1):
        another_round(session, number, stable=False, longer=False)
    assert finish(session) == ["runtime_error"]


def test_one_test_that_cannot_be_judged_leaves_the_whole_problem_not_judged() -> None:
    """Else wrong answers to the others would be judged, and right ones not."""
    recorded = recording([[CALL], []]).decode().splitlines()
    recorded[2] = json.dumps({"test": 1, "status": "api_error", "reason": "the test uses patch"})
    session = FunctionTestSession(asserts(2), "code", 0, "\n".join(recorded).encode() + b"\n")
    step = session.next_step()
    assert isinstance(step, Finished)
    assert [(str(test.status), test.ran, test.reason, test.permanent) for test in step.tests] == [
        ("api_error", False, "the test uses patch", True)
    ] * 2


@pytest.mark.parametrize(
    ("end", "status"), [("timeout", "timeout"), ("memory_limit", "memory_limit"), ("exited", "runtime_error")]
)
def test_replay_that_ends_early_fails_only_its_current_test(end: End, status: str) -> None:
    """The values made it exceed its limits: a program must not be able to make itself not judged."""
    session = session_of(3)
    batch(session)
    session.calls_done(answers(0, 1, 2), COMPILED)
    replayed(session)
    line = b'{"test": 0, "status": "success", "reason": ""}\n'
    session.assertions_done(ProgramRun(end, -9 if end == "exited" else None, line))
    assert replayed(session) == {2: "V"}
    report(session, t2="success")
    assert finish(session) == ["success", status, "success"]


@pytest.mark.parametrize(
    "run",
    [
        ProgramRun("timeout"),
        ProgramRun("exited", 1, b"", b"Traceback\nSyntaxError: bad test\n"),
        ProgramRun("exited", 0, b"nonsense\n"),
        ProgramRun("exited", 0, recording([[CALL]])),
        ProgramRun("exited", 0, b""),
    ],
)
def test_tests_that_cannot_be_recorded_are_not_judged(run: ProgramRun) -> None:
    session = FunctionTestSession(asserts(2), "code")
    assert isinstance(session.next_step(), RunAssertions)
    session.assertions_done(run)
    assert finish(session) == ["api_error (not run)"] * 2
    assert session.recording is None


def test_a_recording_is_given_out_for_the_next_program() -> None:
    session = FunctionTestSession(asserts(1), "code")
    step = session.next_step()
    assert isinstance(step, RunAssertions)
    assert request_of(step.stdin)["mode"] == "record"
    session.assertions_done(ProgramRun("exited", 0, recording([[CALL]])))
    assert session.recording == recording([[CALL]])
    assert batch(FunctionTestSession(asserts(1), "other", 0, session.recording)) == [0]


def test_tests_that_make_no_call_still_run_the_program() -> None:
    session = FunctionTestSession(asserts(1), "code", 0, recording([[]]))
    assert batch(session) == [0]


def test_recording_key_depends_on_every_part_of_the_test() -> None:
    check = CheckTest("prompt", "test", "f")
    keys = {
        recording_key(asserts(1), 0),
        recording_key(asserts(2), 0),
        recording_key(asserts(1), 1),
        recording_key(AssertTests(["assert f(0)"], "import math", "f"), 0),
        recording_key(AssertTests(["assert f(0)"], "", "g"), 0),
        recording_key(check, 0),
        recording_key(CheckTest("other", "test", "f"), 0),
    }
    assert len(keys) == 7
    assert recording_key(check, 0) == recording_key(CheckTest("prompt", "test", "f"), 0)
