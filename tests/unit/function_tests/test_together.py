"""Tests that cannot be judged apart run in the program's process, by a cause that their text shows."""

from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_executor.api import ProgramRun
from evalrun_judge.function_tests.session import AssertTests, CheckTest
from evalrun_judge.function_tests.together import read_together
from evalrun_judge.submission import FunctionTestMode

SECRET = "5ec2e7"
CASES = "import unittest\nclass Cases(unittest.TestCase):\n    def test_one(self): self.assertEqual(f(1), 2)\n"
FORGED = """import os
for fd in (1, *range(3, 20)):
    try: os.write(fd, b'{"status": "success"}\\n')
    except OSError: pass
os._exit(0)"""
PROMPT_ERROR = "class EmptyError(Exception):\n    pass\n\ndef f(xs):\n"


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


@pytest.mark.parametrize(
    ("cause", "test", "right", "wrong"),
    [
        ("process", "import os\nf()\nassert os.environ.get('A') == '1'", "import os\ndef f(): os.environ['A'] = '1'",
         "def f(): pass"),
        ("process", "from unittest import mock\nwith mock.patch('time.sleep') as s: f()\ns.assert_called_once()",
         "import time\ndef f(): time.sleep(9)", "def f(): pass"),
        ("arguments", "assert f(map(int, '12')) == [1, 2]", "def f(x): return list(x)", "def f(x): return [1]"),
        ("arguments", "kept = []\nf(kept.append)\nassert kept == [1]", "def f(cb): cb(1)", "def f(cb): cb(2)"),
        ("arguments", "x = f(0)\nf(iter([1]))\nassert x == 0", "def f(x): return x", "def f(x): return 1"),
        ("arguments", "NONE = object()\nassert f(NONE) is NONE", "def f(x): return x", "def f(x): return 1"),
        ("classes", "class B(f): pass\nassert B().x == 1", "class f: x = 1", "class f: x = 2"),
        ("evaluation", "assert eval(f(1)) == 2", "def f(x): return '1 + 1'", "def f(x): return '1'"),
    ],
)  # fmt: skip
def test_each_cause_is_found_in_the_text_and_both_programs_get_their_verdict(
    forks: WarmForks, cause: str, test: str, right: str, wrong: str
) -> None:
    tests = AssertTests([test], "", "f")
    for program, accepted in ((right, True), (wrong, False)):
        judged = judge(tests, program, execute=forks.run)
        assert (judged.statuses == ["success"], judged.forgeable) == (accepted, [cause])


@pytest.mark.parametrize(
    ("cause", "prompt", "body", "right", "wrong"),
    [
        ("prompt", PROMPT_ERROR, "    try:\n        candidate([])\n        assert False\n    except EmptyError: pass\n",
         "    raise EmptyError", "    return 0"),
        ("prompt", "LOG = []\n\ndef f(x):\n", "    candidate(1)\n    assert LOG == [1]\n", "    LOG.append(x)",
         "    pass"),
        ("prompt", "class f:\n    pass\n", "    assert candidate().x() == 1\n", "    def x(self): return 1",
         "    def x(self): return 2"),
    ],
)  # fmt: skip
def test_prompts_whose_names_both_sides_share_run_together(
    forks: WarmForks, cause: str, prompt: str, body: str, right: str, wrong: str
) -> None:
    tests = CheckTest(prompt, f"def check(candidate):\n{body}", "f")
    for program, accepted in ((right, True), (wrong, False)):
        judged = judge(tests, prompt + program, execute=forks.run)
        assert (judged.statuses == ["success"], judged.forgeable) == (accepted, [cause])


def test_a_file_of_unittest_cases_passes_if_every_case_ran_and_passed(forks: WarmForks) -> None:
    tests = CheckTest("", CASES, "f")
    for program, status in (
        ("def f(x): return 2", "success"),
        ("def f(x): return 1", "wrong_answer"),
        ("import unittest\ndef f(x): raise unittest.SkipTest", "wrong_answer"),
    ):
        judged = judge(tests, program, execute=forks.run)
        assert (judged.statuses, judged.forgeable) == ([status], ["cases"])


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import os\nos._exit(0)", "runtime_error"),
        ("import os\ndef f(x): os._exit(0)", "runtime_error"),
        ("import sys\ndef f(x): sys.exit(0)", "runtime_error"),
        ("def f(x): return \"__import__('os')._exit(0)\"", "runtime_error"),
        (FORGED, "runtime_error"),
        ("def f(x) return x", "compile_error"),
        ("def f(x): raise MemoryError", "memory_limit"),
        ("def f(x): raise KeyError(x)", "runtime_error"),
    ],
)  # fmt: skip
def test_a_process_that_ends_without_its_report_has_failed(forks: WarmForks, program: str, status: str) -> None:
    assert judge(AssertTests(["assert eval(f(1)) == 5"], "", "f"), program, execute=forks.run).statuses == [status]


def test_asserts_that_hang_on_earlier_ones_run_after_them(forks: WarmForks) -> None:
    tests = AssertTests(["it = iter([1, 2])", "assert f(it) == [1, 2]"], "", "f")
    assert judge(tests, "def f(x): return list(x)", execute=forks.run).statuses == ["success"] * 2


@pytest.mark.parametrize(
    ("stdout", "status"),
    [
        (b'5ec2e7 {"status": "success"}\n', "success"),
        (b'other {"status": "success"}\n', "runtime_error"),
        (b'5ec2e7 {"status": "success"}\n5ec2e7 {"status": "success"}\n', "runtime_error"),
        (b'5ec2e7 {"status": "api_error"}\n', "runtime_error"),
        (b"5ec2e7 nothing\n", "runtime_error"),
    ],
)
def test_only_one_report_with_the_secret_counts(stdout: bytes, status: str) -> None:
    assert read_together(ProgramRun("exited", 0, stdout), SECRET).status == status
    assert read_together(ProgramRun("timeout", None, stdout), SECRET).status == "timeout"


@pytest.mark.parametrize(
    ("mode", "test", "status", "cause"),
    [
        ("auto", "assert f(1) == 1", "success", None),
        ("apart", "assert f(1) == 1", "success", None),
        ("together", "assert f(1) == 1", "success", "asked"),
        ("together", "assert f(iter([1]))", "success", "arguments"),
        ("apart", "assert f(iter([1]))", "api_error", None),
    ],
)
def test_a_data_set_may_say_where_its_tests_run(
    forks: WarmForks, mode: str, test: str, status: str, cause: str | None
) -> None:
    tests = AssertTests([test], "", "f")
    (outcome,) = judge(tests, "def f(x): return x", execute=forks.run, mode=FunctionTestMode(mode)).outcomes
    assert (outcome.status, outcome.forgeable) == (status, cause)
