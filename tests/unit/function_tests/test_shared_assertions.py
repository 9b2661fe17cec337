"""Assertions that share a process: they end as they would alone, and what might not be is not let in."""

import json
from collections.abc import Iterator

import pytest
from builders.data import data_file, json_rows
from builders.judge.function_tests import COMPILED, WarmForks, check_of

from evalrun_executor.api import ProgramRun
from evalrun_judge.function_tests.session import AssertTests, CheckTest, FunctionTestSession, RunAssertions, RunCalls
from evalrun_judge.function_tests.shared_assertions import apart, together


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


def recording_step(tests: CheckTest | AssertTests) -> bytes:
    step = FunctionTestSession(tests, "").next_step()
    assert isinstance(step, RunAssertions)
    return step.stdin


def is_pure(forks: WarmForks, text: str, prompt: str = "") -> bool:
    step = recording_step(CheckTest(prompt, text, "f"))
    found = json.loads(forks.run("assertions", "", step).stdout.splitlines()[0])["pure"]
    assert isinstance(found, bool)
    return found


def in_company(forks: WarmForks, requests: list[bytes]) -> list[ProgramRun | None]:
    return apart(forks.run("assertions", "", together(requests)), len(requests))


def check(*lines: str) -> str:
    return "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        check("assert candidate([1, 2]) == [2, 1], 'no'"),
        "import math\n" + check("assert math.isclose(candidate(math.pi), 1.0)"),
        "import random\n" + check("for _ in range(3):", "    x = random.randint(1, 9)", "    assert candidate(x) == x"),
        "from copy import deepcopy\nfrom typing import List\n" + check("assert candidate(deepcopy([])) == []"),
        check("try:", "    candidate(0)", "except ValueError as error:", "    assert 'zero' in str(error)"),
    ],
)
def test_ordinary_tests_are_pure(forks: WarmForks, text: str) -> None:
    assert is_pure(forks, text)


@pytest.mark.parametrize(
    "line",
    [
        "import math; math.pi = 3",
        "import math as m; n = m; assert candidate(n)",
        "import os",
        "import sys; sys.setrecursionlimit(2000)",
        "sys.setrecursionlimit(2000)",
        "import typing; typing.sys.setrecursionlimit(2000)",
        "from typing import sys",
        "from random import *",
        "from copy import dispatch_table",
        "import copy; copy.dispatch_table[int] = str",
        "setattr(candidate, 'x', 1)",
        "getattr(candidate, 'x')",
        "exec('import os')",
        "__builtins__['abs'] = 0",
        "assert candidate.__globals__",
        "assert (x for x in []).gi_frame.f_builtins",
        "match candidate:\n        case object(gi_frame=f): pass",
        "import numpy",
    ],
)
def test_tests_with_lasting_effects_are_not_pure_and_do_not_share_a_process(forks: WarmForks, line: str) -> None:
    text = "".join(part + "\n" for part in (f"def check(candidate):\n    {line}", "    assert candidate(1) == 1"))
    assert not is_pure(forks, text)
    harmless = recording_step(CheckTest("", check("assert candidate(1) == 1"), "f"))
    found = in_company(forks, [harmless, recording_step(CheckTest("", text, "f")), harmless])
    assert [run is None for run in found] == [False, True, False]


def test_impure_prompt_makes_the_test_impure(forks: WarmForks) -> None:
    text = check("assert candidate(1) == 1")
    assert is_pure(forks, text, 'import math\ndef f(x):\n    """x"""\n')
    assert not is_pure(forks, text, 'import sys\ndef f(x):\n    """x"""\n')


def test_test_without_an_answer_in_a_shared_process_is_left_for_its_own_process(forks: WarmForks) -> None:
    endless = recording_step(CheckTest("", check("while True:", "    pass"), "f"))
    harmless = recording_step(CheckTest("", check("assert candidate(1) == 1"), "f"))
    request = together([harmless, endless, harmless])
    found = apart(forks.run("assertions", "", request, seconds=0.5), 3)
    assert [run is None for run in found] == [False, True, True]


def test_replay_out_of_memory_in_a_shared_process_gets_no_answer_there(forks: WarmForks) -> None:
    tests = AssertTests(["assert len(f(0) * 10 ** 12) == 1"], "", "f")
    _, _, replay = judged_alone(forks, tests, "")
    assert b"memory_limit" in forks.run("assertions", "", replay).stdout
    assert in_company(forks, [replay, replay]) == [None, None]


def judged_alone(forks: WarmForks, tests: CheckTest | AssertTests, code: str) -> tuple[bytes, bytes, bytes]:
    """Return the requests of recording and replay, and what the latter said; a program without code returns "x"."""
    session = FunctionTestSession(tests, code)
    record = session.next_step()
    assert isinstance(record, RunAssertions)
    session.assertions_done(forks.run("assertions", "", record.stdin))
    calls = session.next_step()
    assert isinstance(calls, RunCalls)
    if code:
        session.calls_done(forks.run("calls", code, calls.stdin), COMPILED)
    else:
        session.calls_done(ProgramRun("exited", 0, b'load V null\n0 0 V ["x",null]\nend\n'), COMPILED)
    replay = session.next_step()
    assert isinstance(replay, RunAssertions)
    return record.stdin, forks.run("assertions", "", replay.stdin).stdout, replay.stdin


def test_humaneval_replays_give_the_same_results_shared_and_alone(forks: WarmForks) -> None:
    """Every 8th problem, solved and not: recordings and replays, all in one process, say what each says by itself."""
    rows = json_rows(data_file("humaneval/HumanEval.jsonl.gz"))[::8]
    alone, requests = [], []
    for row in rows:
        for code in (f"{row['prompt']}{row['canonical_solution']}", f"def {row['entry_point']}(*args): return 1\n"):
            record, said, replay = judged_alone(forks, check_of(row), code)
            requests += [record, replay]
            alone += [forks.run("assertions", "", record).stdout, said]
    found = in_company(forks, requests)
    told = [run.stdout for run in found if run is not None]
    assert told == [said for said, run in zip(alone, found, strict=True) if run is not None]
    assert len(told) > 0.9 * len(requests)
    assert any(b"success" in said for said in told)
    assert any(b"wrong_answer" in said for said in told)
