"""Tests that change or watch their own process run in the program's, as their text decides."""

from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_judge.function_tests.session import (
    AssertTests,
    CheckTest,
    FunctionTestSession,
    RunAssertions,
    RunTogether,
)

CASE = "import unittest\nt = unittest.TestCase()\n"

WATCHING = {
    "mock.patch": "from unittest import mock\nwith mock.patch('time.sleep'): f(1)",
    "mock.patch.object": "from unittest import mock\nimport time\nwith mock.patch.object(time, 'sleep'): f(1)",
    "patch": "from unittest.mock import patch\nwith patch('time.sleep') as p: f(1)",
    "patch under another name": "from unittest.mock import patch as p\nwith p('time.sleep'): f(1)",
    "patch as a decorator": "from unittest.mock import patch\n@patch('time.sleep')\ndef go(p): f(1)\ngo()",
    "unittest.mock.patch": "import unittest.mock\nwith unittest.mock.patch('time.sleep'): f(1)",
    "the package mock": "import mock\nwith mock.patch('time.sleep'): f(1)",
    "assertLogs": f"{CASE}with t.assertLogs(): f(1)",
    "assertNoLogs": f"{CASE}with t.assertNoLogs(): f(1)",
    "assertWarns": f"{CASE}with t.assertWarns(UserWarning): f(1)",
    "assertWarnsRegex": f"{CASE}with t.assertWarnsRegex(UserWarning, 'x'): f(1)",
    "catch_warnings": "import warnings\nwith warnings.catch_warnings(record=True) as w: f(1)\nassert w",
    "catch_warnings by name": "from warnings import catch_warnings\nwith catch_warnings(): f(1)",
    "a handler of logs": "import logging\nlogging.getLogger().addHandler(logging.NullHandler())\nf(1)",
    "logs switched off": "import logging\nlogging.disable()\nf(1)",
    "os.environ": "import os\nos.environ['A'] = '1'\nassert f('A') == '1'",
    "environ": "from os import environ\nenviron['A'] = '1'\nassert f('A') == '1'",
    "del os.environ": "import os\ndel os.environ['PATH']\nf(1)",
    "os.environ.update": "import os\nos.environ.update(A='1')\nf(1)",
    "os.environ.setdefault": "import os\nos.environ.setdefault('A', '1')\nf(1)",
    "os.environ without an import": "os.environ['A'] = '1'\nassert f('A') == '1'",
    "os.chdir": "import os\nos.chdir('/')\nf(1)",
    "time.sleep": "import time\ntime.sleep = print\nf(1)",
    "time.sleep under another name": "import time as t\nt.sleep = print\nf(1)",
    "setattr": "import time\nsetattr(time, 'sleep', print)\nf(1)",
    "builtins.input": "import builtins\nbuiltins.input = lambda *a: '3'\nassert f() == 3",
    "sys.stdin": "import io, sys\nsys.stdin = io.StringIO('3')\nassert f() == 3",
    "sys.argv": "import sys\nsys.argv = ['x', '3']\nassert f() == 3",
    "sys.setrecursionlimit": "import sys\nsys.setrecursionlimit(10 ** 6)\nassert f(10 ** 5)",
    "the decimal context": "import decimal\ndecimal.getcontext().prec = 50\nassert f(1)",
    "a file": "with open('x.txt', 'w') as file: file.write('3')\nassert f('x.txt') == 3",
    "a fixture": "def test(monkeypatch): monkeypatch.setattr('time.sleep', print)\nf(1)",
    "captured output": "def test(capsys): f(1)\ntest(None)",
    "os.environ is read": "import os\nf(1)\nassert os.environ.get('A') == '1'",
    "a clock": "from time import perf_counter\nt = perf_counter()\nf(1)\nassert perf_counter() - t < 0.5",
    "today": "import datetime\nassert f() == datetime.date.today()",
    "memory": "import tracemalloc\ntracemalloc.start()\nf(1)",
    "modules": "import sys\nf(1)\nassert 'sqlite3' not in sys.modules",
    "the state of random": "import random\ns = random.getstate()\nf(1)\nassert random.getstate() == s",
    "threads": "import threading\nf(1)\nassert threading.active_count() == 1",
    "a file that is there": "from pathlib import Path\nf('x')\nassert Path('x').exists()",
    "a text of the test watches": "s = {}\nexec('import os\\ndef g(): return os.environ', s)\nassert f(1) == s['g']()",
    "a text of the program": "s = {}\nexec(f(1), s)\nassert s['x'] == 1",
    "a text in the test's own namespace": "exec('x = 1')\nassert f(1) == x",
    "a text in all of the test's namespace": "exec('x = 1', globals())\nassert f(1) == x",
    "a text that evaluates": "s = {}\nexec('def g(x): return eval(x)', s)\nassert s['g'](f(1)) == 1",
    "no text of Python": "s = {}\ntry: exec('def', s)\nexcept SyntaxError: pass\nassert f(1) == 1",
    "a signal": "import signal\nsignal.alarm(1)\nf(1)",
}
JUDGED = {
    "a part of a version": ("assert f('1.2.3').patch == 3", ("from types import SimpleNamespace as N\n"
                            "def f(v): return N(patch=int(v[-1]))")),
    "a variable": ("mock = f(1)\npatch = mock\nassert patch == 1", "def f(x): return x"),
    "stdout": (("import io, sys\nkept = sys.stdout\nsys.stdout = io.StringIO()\nf(1)\nsaid = sys.stdout.getvalue()\n"
               "sys.stdout = kept\nassert said == '1\\n'"), "def f(x): print(x)"),
    "a path is joined": ("import os\nassert f(os.path.join('a', 'b')) == 'a/b'", "def f(x): return x"),
    "an object of the program is changed": ("o = f()\no.patch = 3\nassert o.patch == 3",
                                            "class O: pass\ndef f(): return O()"),
    "a dict of the test": ("d = {}\nd.update(a=1)\nd['b'] = 2\nassert f(d) == 2", "def f(d): return len(d)"),
    "a parameter called input": ("s = {}\nexec('def g(input): return input + 1', s)\nassert f(1) == s['g'](1)",
                                 "def f(x): return x + 1"),
    "a reference of the test": ("s = {}\nexec('def g(x): return abs(x) + 1', s)\nassert f(1) == s['g'](1)",
                                "def f(x): return x + 1"),
    "assertRaises": (f"{CASE}with t.assertRaises(ValueError): f(1)", "def f(x): raise ValueError"),
}  # fmt: skip


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


def first_run(tests: AssertTests | CheckTest, forks: WarmForks) -> object:
    session = FunctionTestSession(tests, "def f(*args): return 1")
    step = session.next_step()
    assert isinstance(step, RunAssertions)
    session.assertions_done(forks.run("assertions", "", step.stdin))
    return session.next_step()


@pytest.mark.parametrize("name", WATCHING)
def test_a_problem_of_which_one_test_watches_its_process_runs_together_as_a_whole(forks: WarmForks, name: str) -> None:
    step = first_run(AssertTests(["assert f(1) == 1", WATCHING[name]], "", "f"), forks)
    assert isinstance(step, RunTogether)
    assert len(step.inputs) == 2


def test_a_check_that_watches_its_process_runs_together(forks: WarmForks) -> None:
    body = "".join(f"    {line}\n" for line in WATCHING["mock.patch"].replace("f(1)", "candidate(1)").splitlines())
    tests = CheckTest("def f(x):\n", f"def check(candidate):\n{body}", "f")
    assert isinstance(first_run(tests, forks), RunTogether)


@pytest.mark.parametrize("name", JUDGED)
def test_tests_that_only_resemble_process_watching_are_judged_by_replay(forks: WarmForks, name: str) -> None:
    test, program = JUDGED[name]
    (outcome,) = judge(AssertTests([test], "", "f"), program, execute=forks.run).outcomes
    assert (outcome.status, outcome.forgeable) == ("success", None)
