"""Function tests where the first failure decides: the decision is that of all tests, with fewer processes."""

import json
from collections.abc import Mapping

import pytest
from builders.judge.function_tests import COMPILED, Judged, adding, judge, request_of

from evalrun_executor.api import ProgramRun
from evalrun_judge.function_tests.session import AssertTests, Finished, FunctionTestSession, RunAssertions, RunCalls
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import FunctionTestMode
from evalrun_judge.waves import has_failed

CALL = ["f", [1], {"d": []}]
TESTS = adding(*(f"assert add({n}, 1) == {n + 1}" for n in range(7)))
PROGRAMS = {
    "right": "def add(x, y):\n    return x + y\n",
    "wrong everywhere": "def add(x, y):\n    return 'no'\n",
    "wrong for one": "def add(x, y):\n    return x + y + (x == 5)\n",
    "raises": "def add(x, y):\n    return 1 // 0\n",
    "ends its process": "import os\ndef add(x, y):\n    os._exit(0)\n",
    "ends its process late": "import os\ndef add(x, y):\n    return x + y if x < 3 else os._exit(0)\n",
    "no function": "print('hello')\n",
    "does not compile": "def add(:\n",
}


def crash_in_second_test(*, stops: bool = True) -> FunctionTestSession:
    """Return a session of four tests after the process of its calls ended in the second test's."""
    head = {"names": [], "modules": [], "imports": ""}
    lines = [head, *({"test": index, "calls": [CALL]} for index in range(4))]
    recorded = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    tests = AssertTests([f"assert f({n})" for n in range(4)], "", "f")
    session = FunctionTestSession(tests, "code", 0, recorded, 1, stop_at_failure=stops)
    assert list_called(session) == [0, 1, 2, 3]
    session.calls_done(ProgramRun("exited", 1, b"load V null\n0 0 V [1,null]\n"), COMPILED)
    return session


def list_called(session: FunctionTestSession) -> list[int]:
    step = session.next_step()
    assert isinstance(step, RunCalls), step
    tests = request_of(step.stdin)["tests"]
    assert isinstance(tests, list)
    return [test for test, _ in tests]


def report(session: FunctionTestSession, statuses: Mapping[int, str]) -> None:
    """Answer a replay, which must be of these tests."""
    step = session.next_step()
    assert isinstance(step, RunAssertions), step
    assert [test for test, *_ in json.loads(step.stdin.splitlines()[0])["tests"]] == list(statuses)
    lines = [json.dumps({"test": index, "status": status}) for index, status in statuses.items()]
    session.assertions_done(ProgramRun("exited", 0, "\n".join(lines).encode() + b"\n"))


def test_session_ended_process_is_replayed_before_another_one_runs() -> None:
    session = crash_in_second_test()
    report(session, {0: "success", 1: "runtime_error"})
    step = session.next_step()
    assert isinstance(step, Finished), step
    assert (step.indices, step.complete) == ((0, 1), False)
    assert [test.status for test in step.tests] == [TestStatus.SUCCESS, TestStatus.RUNTIME_ERROR]


def test_session_without_stop_runs_the_later_tests_first() -> None:
    assert list_called(crash_in_second_test(stops=False)) == [2, 3]


@pytest.mark.parametrize("status", ["success", "api_error"])
def test_session_continues_after_an_end_that_is_no_failure(status: str) -> None:
    session = crash_in_second_test()
    report(session, {0: "success", 1: status})
    assert list_called(session) == [2, 3]
    session.calls_done(ProgramRun("exited", 0, b"load V null\n2 0 V [1,null]\n3 0 V [1,null]\n"), COMPILED)
    report(session, {2: "success", 3: "wrong_answer"})
    step = session.next_step()
    assert isinstance(step, Finished), step
    assert (step.indices, step.complete) == ((0, 1, 2, 3), True)


def decide(judged: Judged) -> tuple[bool, bool]:
    statuses = [outcome.status for outcome in judged.outcomes]
    return all(status is TestStatus.SUCCESS for status in statuses), has_failed(statuses)


@pytest.mark.parametrize("mode", [FunctionTestMode.AUTO, FunctionTestMode.TOGETHER])
@pytest.mark.parametrize("name", PROGRAMS)
def test_stop_at_failure_changes_no_decision(name: str, mode: FunctionTestMode) -> None:
    whole = judge(TESTS, PROGRAMS[name], mode=mode)
    stopped = judge(TESTS, PROGRAMS[name], mode=mode, recorded=whole.recording, stop_at_failure=True)
    assert decide(stopped) == decide(whole)
    assert decide(stopped) == (name == "right", name != "right")
    assert len(stopped.replies) <= len(whole.replies)


def test_stop_at_failure_saves_the_processes_after_the_first_that_ended() -> None:
    whole = judge(TESTS, PROGRAMS["ends its process"])
    stopped = judge(TESTS, PROGRAMS["ends its process"], recorded=whole.recording, stop_at_failure=True)
    assert (len(whole.replies), len(stopped.replies)) == (7, 1)


@pytest.mark.parametrize(("name", "runs"), [("right", 7), ("wrong everywhere", 1), ("wrong for one", 7)])
def test_stop_at_failure_runs_tests_of_one_process_in_waves(name: str, runs: int) -> None:
    judged = judge(TESTS, PROGRAMS[name], mode=FunctionTestMode.TOGETHER, stop_at_failure=True)
    assert len(judged.replies) == runs
