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
def test_each_forgeable_cause_is_reported_with_the_right_verdict(
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


BIGCODEBENCH_TEST = """import os
import unittest
from unittest.mock import patch

class TestCases(unittest.TestCase):
    def setUp(self):
        with open("numbers.txt", "w") as file: file.write("1\\n2\\n")
    def tearDown(self):
        os.remove("numbers.txt")
    def test_sum(self):
        self.assertEqual(task_func("numbers.txt"), 3)
    def test_missing(self):
        with self.assertRaises(FileNotFoundError): task_func("nothing.txt")
    @patch("builtins.print")
    def test_silent(self, shown):
        task_func("numbers.txt")
        shown.assert_not_called()
"""


def test_bigcodebench_rows_are_judged_beside_the_program(forks: WarmForks) -> None:
    prompt = 'import os\n\ndef task_func(path):\n    """Sum the lines of a file."""\n'
    tests = CheckTest(prompt, BIGCODEBENCH_TEST, "task_func")
    for body, status in (
        ("    with open(path) as file: return sum(map(int, file))\n", "success"),
        ("    with open(path) as file: return len(list(file))\n", "wrong_answer"),
        ("    with open(path) as file: print(file)\n    return 3\n", "wrong_answer"),
        ("    return 3\n", "wrong_answer"),
        ("    return nothing\n", "wrong_answer"),
    ):
        judged = judge(tests, prompt + body, execute=forks.run)
        assert (judged.statuses, judged.forgeable) == ([status], ["cases"]), judged.outcomes


PYTEST_FILE = """class Mark:
    def __init__(self, names, rows): self.name, self.args = "parametrize", (names, rows)
def parametrize(names, rows):
    def marked(function):
        function.pytestmark = [Mark(names, rows)]
        return function
    return marked

def test_one(): assert f(1) == 2

@parametrize("given, wanted", [(2, 3), (3, 4)])
def test_rows(given, wanted): assert f(given) == wanted

@parametrize("given", [4, 5])
def test_alone(given): assert f(given) == given + 1

class TestMore:
    def setup_method(self, method): self.start = 6
    def test_method(self): assert f(self.start) == 7
"""
"""Marks as pytest makes them, which is not in the sandbox here."""


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("def f(x): return x + 1", "success"),
        *((f"def f(x): return x + (x != {wrong})", "wrong_answer") for wrong in (1, 3, 5, 6)),
    ],
)
def test_a_file_of_pytest_runs_functions_rows_and_methods(forks: WarmForks, program: str, status: str) -> None:
    assert judge(CheckTest("", PYTEST_FILE, "f"), program, execute=forks.run).statuses == [status]


def test_a_test_whose_package_is_missing_is_not_judged_whatever_the_program(forks: WarmForks) -> None:
    tests = CheckTest("", "import nowhere_to_be_found\n" + CASES, "f")
    for program in ("def f(x): return 2", "import sys\nsys.modules['nowhere_to_be_found'] = sys\ndef f(x): return 1"):
        (outcome,) = judge(tests, program, execute=forks.run).outcomes
        assert (outcome.status, outcome.cause, outcome.permanent) == ("api_error", "broken_test", True)
        assert outcome.missing_module == "nowhere_to_be_found"


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


def test_asserts_that_depend_on_earlier_asserts_run_after_them(forks: WarmForks) -> None:
    tests = AssertTests(["it = iter([1, 2])", "assert f(it) == [1, 2]"], "", "f")
    assert judge(tests, "def f(x): return list(x)", execute=forks.run).statuses == ["success"] * 2


@pytest.mark.parametrize(
    ("stdout", "status"),
    [
        (b'5ec2e7 {"status": "success"}\n', "success"),
        (b'other {"status": "success"}\n', "runtime_error"),
        (b'5ec2e7 {"status": "success"}\n5ec2e7 {"status": "success"}\n', "runtime_error"),
        (b'5ec2e7 {"status": "timeout"}\n', "runtime_error"),
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
