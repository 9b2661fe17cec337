"""What users of HumanEval and MBPP expect of a test, judged in two processes: the harnesses, as they run."""

from collections.abc import Iterator

import pytest
from builders.judge.function_tests import Judged, WarmForks, adding, judge, request_of

from evalrun_executor.api import ProgramRun
from evalrun_judge.function_tests.session import AssertTests, CheckTest, FunctionTestOutcome
from evalrun_judge.status import TestCause


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


def outcome(forks: WarmForks, tests: AssertTests | CheckTest, code: str) -> FunctionTestOutcome:
    (only,) = judge(tests, code, execute=forks.run).outcomes
    return only


def statuses(forks: WarmForks, tests: AssertTests | CheckTest, code: str) -> list[str]:
    return judge(tests, code, execute=forks.run).statuses


def checked(body: str, prompt: str = "def f(x):\n    '''Doc.'''\n") -> CheckTest:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return CheckTest(prompt, f"METADATA = {{}}\n\ndef check(candidate):\n{lines}", "f")


TWICE = "def f(x):\n    return x * 2\n"
PAIRS = """
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

def f(pairs):
    return sum(p.a + p.b for p in pairs)
"""
MANY_CALLS = "x = 0\nfor _ in range(20):\n    x = f(x + 1)\nassert x == []"


@pytest.mark.parametrize(
    ("asserts", "code"),
    [
        ("assert f(1) == 2", TWICE),
        ("assert f('a') == 'aa', 'message'", TWICE),
        ("assert abs(f(0.1) - 0.2) < 1e-9", TWICE),
        ("assert f((1, [2])) == (1, [2], 1, [2])", TWICE),
        ("import math\nassert math.isclose(f(0.5), 1.0)", TWICE),
        ("assert list(map(f, [1, 2])) == [2, 4]", TWICE),
        ("assert sorted([3, 1], key=f) == [1, 3]", TWICE),
        ("assert f(f(1)) == 4", TWICE),
        ("assert f(f(1) + 1) == 6", TWICE),
        ("x = f(1)\nfor _ in range(5):\n    x = f(x)\nassert x == 64", TWICE),
        ("for i in range(3):\n    assert f(i) == 2 * i", TWICE),
        ("assert f(x=3) == 6", TWICE),
        ("assert f(1) in (2, 3) and not f(0)", TWICE),
        ("if f(1) == 2:\n    assert f(2) == 4\nelse:\n    assert f(3) == 9", TWICE),
        ("assert f(1) == 2 if f(0) == 0 else f(9) == 9", TWICE),
        ("assert f([3, 1, 2]) == [1, 2, 3]", "f = sorted"),
        ("assert f([3, 1], max) == 3", "def f(x, choose):\n    return choose(x)"),
        ("assert f(1, int)", "def f(x, kind):\n    return isinstance(x, kind)"),
        ("assert f('abc') == {'a': 1, 'b': 1, 'c': 1}", "from collections import Counter\nf = Counter"),
        ("assert f(2) is None", "def f(x):\n    pass"),
        ("assert f(3) is float", "def f(x):\n    return float"),
        ("assert f(10**5000) == 10**5001", "def f(x):\n    return x * 10"),
        ("assert f(1) == f.__name__", "def f(x):\n    return 'f'"),
        ("assert f(g(2)) == 8", TWICE + "def g(x):\n    return x ** 2"),
        ("assert f([Pair(1, 2), Pair(3, 4)]) == 10", PAIRS),
        ("assert f(make(3)) == 3", "def make(n):\n    return iter(range(n))\ndef f(x):\n    return len(list(x))"),
        ("assert f(sys.maxsize) == 2 * sys.maxsize", "import sys\n" + TWICE),
        ("l = [3, 1, 2]\nf(l)\nassert l == [1, 2, 3]", "def f(x):\n    x.sort()"),
        ("d, s = {1: 2}, {1}\nf(d, s)\nassert d == {} and s == {1, 5}", "def f(d, s):\n    d.clear()\n    s.add(5)"),
        ("l = []\nf(l); f(l)\nassert l == [1, 1]", "def f(x):\n    x.append(1)"),
        ("try:\n    f(0)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'no'",
         "def f(x):\n    raise ValueError('no')"),
        ("try:\n    f(0)\nexcept KeyError as e:\n    assert e.args == (0,)", "def f(x):\n    return {}[x]"),
        ("try:\n    f(0)\n    assert False\nexcept Exception as e:\n    assert type(e).__name__ == 'MineError'",
         "class MineError(Exception):\n    pass\ndef f(x):\n    raise MineError"),
        ("import random\nfor _ in range(5):\n    n = random.randint(0, 10**9)\n    assert f(n) == 2 * n", TWICE),
        ("assert f(1) == 1 and f(1) == 2", "calls = 0\ndef f(x):\n    global calls\n    calls += 1\n    return calls"),
        ("assert sum(1, 2) == 3", "def sum(a, b):\n    return a + b"),
    ],
)  # fmt: skip
def test_a_right_program_is_accepted(forks: WarmForks, asserts: str, code: str) -> None:
    entry = "sum" if asserts.startswith("assert sum(") else "f"
    found = outcome(forks, adding(asserts, entry=entry), code)
    assert (found.status, found.reason) == ("success", "")


@pytest.mark.parametrize(
    ("asserts", "code", "status", "reason"),
    [
        ("assert f(1) == 3", TWICE, "wrong_answer", "the assertion failed"),
        ("assert f(1) == 3, 'why'", TWICE, "wrong_answer", "the assertion failed: why"),
        ("assert f(1)[0] == 3", TWICE, "wrong_answer", "TypeError"),
        ("assert f(1) + 'a' == 3", TWICE, "wrong_answer", "TypeError"),
        ("assert f(1)", "def f(x):\n    return 1 / 0", "runtime_error", "ZeroDivisionError: division by zero"),
        ("assert f(1)", "def f():\n    pass", "runtime_error", "TypeError"),
        ("assert f(1)", "def g():\n    pass", "runtime_error", "name 'f' is not defined"),
        ("assert f(1)", "def f(x):\n    assert False", "runtime_error", "AssertionError"),
        ("try:\n    f(1)\nexcept Exception:\n    assert False", "def f(x):\n    1 / 0", "runtime_error", "ZeroDiv"),
        ("try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", TWICE, "wrong_answer", ""),
        ("assert f(1)", "def f(x):\n    raise MemoryError", "memory_limit", "MemoryError"),
        ("assert f(1)", "def f(x):\n    return f(x)", "runtime_error", "RecursionError"),
        ("assert f(1) == [1]", "def f(x):\n    return map(int, '1')", "wrong_answer", "the assertion failed"),
        ("assert f(1) == 1", "def f(x):\n    yield 1", "wrong_answer", "the assertion failed"),
        ("assert f(1)[0] == 1", "class A:\n    pass\ndef f(x):\n    return [A()]", "wrong_answer", "failed"),
        ("assert f(1) == 1", "1 / 0\n" + TWICE, "runtime_error", "division by zero while it was loaded"),
        ("assert f(1) == 1", "import nothing_of_that_name\n" + TWICE, "runtime_error", "ModuleNotFoundError"),
        ("assert f(1) == 1", "def f(x) return x", "compile_error", ""),
        ("assert f(1) == 1", "x = '\\ud800'\nx = 'a\0b'", "compile_error", ""),
        ("assert undefined_here.thing == f(1)", TWICE, "runtime_error", "name 'undefined_here' is not defined"),
        ("import time\nx = time.time_ns()\nassert f(x) == 2 * x", TWICE, "success", ""),
        ("undefined + 1", TWICE, "runtime_error", "name 'undefined' is not defined"),
        (MANY_CALLS, "import time\ndef f(x):\n    return time.time_ns()", "runtime_error", "something else each time"),
    ],
)  # fmt: skip
def test_failed_assert_has_status_and_reason(
    forks: WarmForks, asserts: str, code: str, status: str, reason: str
) -> None:
    found = outcome(forks, adding(asserts, entry="f"), code)
    assert found.status == status, found
    assert reason in found.reason


def test_function_named_check_is_not_confused_with_the_check_of_the_test(forks: WarmForks) -> None:
    tests = CheckTest("", "def check(candidate):\n    assert candidate(3) == 6\n", "check")
    assert statuses(forks, tests, "def check(x):\n    return x * 2\n") == ["success"]
    assert statuses(forks, tests, "def check(x):\n    return x + 2\n") == ["wrong_answer"]


def test_each_assert_is_a_test_of_its_own(forks: WarmForks) -> None:
    tests = adding("assert f(1) == 2", "assert f(2) == 5", "assert f('x') == 'xx'", entry="f")
    judged = judge(tests, TWICE, execute=forks.run)
    assert judged.statuses == ["success", "wrong_answer", "success"]
    assert len(judged.batches) == 1
    wrong = judged.outcomes[1]
    assert (wrong.input, wrong.expected, wrong.actual) == ("assert f(2) == 5", "5", "4")


def test_ended_process_fails_only_the_test_in_which_it_ended(forks: WarmForks) -> None:
    code = (
        "import os\ndef f(x):\n    if x == 2:\n        os._exit(0)\n    if x == 4:\n        os.abort()\n    return x\n"
    )
    judged = judge(adding(*(f"assert f({n}) == {n}" for n in range(1, 6)), entry="f"), code, execute=forks.run)
    assert judged.statuses == ["success", "runtime_error", "success", "runtime_error", "success"]
    assert len(judged.batches) == 3
    assert judged.outcomes[1].reason == "the program ended the process with exit code 0"
    assert judged.outcomes[3].reason == "the program was ended by signal 6"


def test_an_assertion_that_fails_before_the_fatal_call_is_a_wrong_answer(forks: WarmForks) -> None:
    code = "import os\ndef f(x):\n    return os._exit(1) if x == 2 else x\n"
    assert outcome(forks, checked("assert candidate(1) == 9\nassert candidate(2) == 2"), code).status == "wrong_answer"


def test_end_in_a_call_that_only_the_recording_made_is_ignored(forks: WarmForks) -> None:
    code = "import os\ndef f(x):\n    return os._exit(1) if x == 2 else 0\n"
    assert outcome(forks, checked("if candidate(1):\n    candidate(2)\nassert True"), code).status == "success"


def test_the_failing_assertion_of_a_check_is_shown_with_its_values(forks: WarmForks) -> None:
    found = outcome(
        forks, checked("for n in [1, 2]:\n    want = n + 1\n    assert candidate(\n        n) == want + 0"), TWICE
    )
    assert found.status == "wrong_answer"
    assert found.input == "assert candidate(\n            n) == want + 0"
    assert (found.expected, found.actual) == ("3", "4")


def test_a_check_sees_the_prompts_helpers_and_not_the_programs(forks: WarmForks) -> None:
    prompt = "import math\ndef helper(x):\n    return math.floor(x)\n\ndef f(x):\n    '''Doc.'''\n"
    tests = checked("assert candidate(2.5) == helper(2.5)", prompt)
    assert statuses(forks, tests, prompt + "    return 2") == ["success"]
    cheat = prompt + "    return 0\ndef helper(x):\n    return 0\n"
    assert statuses(forks, tests, cheat) == ["wrong_answer"]


@pytest.mark.parametrize("prompt", ["def f(x):", "def f(x):\n    '''Doc.'''", "Write f, please.", ""])
def test_a_prompt_that_is_no_program_does_not_matter(forks: WarmForks, prompt: str) -> None:
    assert statuses(forks, checked("assert candidate(1) == 2", prompt), TWICE) == ["success"]


def test_a_check_may_call_the_function_by_its_name(forks: WarmForks) -> None:
    assert statuses(forks, checked("assert candidate(1) == f(1) == 2"), TWICE) == ["success"]


def test_the_setup_runs_on_both_sides_but_only_its_imports_reach_the_program(forks: WarmForks) -> None:
    setup = "import math\nfrom os import (\n    path)\nSECRET = 42\ndef reference(x):\n    return math.floor(x)\n"
    tests = adding("assert f(2.5) == reference(2.5)", "assert f(0) == SECRET", entry="f", setup=setup)
    code = "def f(x):\n    return math.floor(x) if x else globals().get('SECRET', globals().get('reference'))\n"
    judged = judge(tests, code, execute=forks.run)
    assert judged.statuses == ["success", "wrong_answer"]
    assert request_of(judged.batches[0])["imports"] == "import math\nfrom os import (\n    path)"
    assert b"SECRET" not in judged.batches[0]


def test_names_of_one_assert_do_not_reach_the_next(forks: WarmForks) -> None:
    tests = adding("x = 1\nassert f(1) == 2", "x += 1\nassert f(2) == 4", entry="f")
    assert statuses(forks, tests, TWICE)[0] == "success"
    assert statuses(forks, tests, TWICE)[1] != "success"


def test_output_of_a_program_is_stored_with_its_test_and_forges_no_answer(forks: WarmForks) -> None:
    code = "import os\ndef f(x):\n    print('x is', x)\n    os.write(1, b'0 0 V [9,null]\\n')\n    return 2 * x\n"
    judged = judge(adding("assert f(1) == 2", "assert f(2) == 4", entry="f"), code, execute=forks.run)
    assert judged.statuses == ["success", "success"]
    assert [found.stdout for found in judged.outcomes] == ["x is 1\n", "x is 2\n"]
    assert "0 0 V [9,null]" in judged.outcomes[0].stderr


def test_a_flood_of_prints_is_cut_and_the_value_counts(forks: WarmForks) -> None:
    code = "def f(x):\n    for _ in range(300):\n        print('x' * 10000)\n    return x\n"
    found = outcome(forks, adding("assert f(1) == 1", entry="f"), code)
    assert found.status == "success"
    assert 0 < len(found.stdout) <= 16384


def test_the_program_finds_an_empty_stdin_and_a_name_of_its_own(forks: WarmForks) -> None:
    code = (
        "import sys, dataclasses\n@dataclasses.dataclass\nclass A:\n    x: 'int' = 1\n"
        "def f(x):\n    return [__name__, sys.stdin.read(), A().x, sys.modules[__name__].f is f]\n"
        "if __name__ == '__main__':\n    input()\n"
    )
    found = outcome(forks, adding("assert f(1) == ['program', '', 1, True]", entry="f"), code)
    assert found.status == "success", found


def test_a_traceback_names_the_programs_own_lines_only(forks: WarmForks) -> None:
    found = outcome(
        forks, adding("assert f(1)", entry="f"), "def f(x):\n    return g(x)\ndef g(x):\n    return [][x]\n"
    )
    assert found.stderr.splitlines()[1] == '  File "<program>", line 2, in f'
    assert "harness" not in found.stderr


def test_recording_is_reused_for_the_next_program(forks: WarmForks) -> None:
    tests = adding("assert f(1) == 2", entry="f")
    first = judge(tests, TWICE, execute=forks.run)
    modes: list[str] = []

    def execute(mode: str, code: str, stdin: bytes) -> ProgramRun:
        modes.append(mode)
        return forks.run(mode, code, stdin)

    second = judge(tests, TWICE, execute=execute, recorded=first.recording)
    assert second.statuses == ["success"]
    assert modes == ["calls", "assertions"]


def test_tests_that_cannot_be_recorded_are_not_judged(forks: WarmForks) -> None:
    judged: Judged = judge(adding("assert f(1) ==", entry="f"), TWICE, execute=forks.run)
    assert judged.statuses == ["api_error"]
    assert "could not be recorded: SyntaxError" in judged.outcomes[0].reason
    assert judged.outcomes[0].cause is TestCause.BROKEN_TEST
    assert judged.recording is None


@pytest.mark.parametrize("body", ["x = 1", "while candidate(1):\n    pass", "raise ValueError('broken')"])
def test_test_without_an_assertion_does_not_fail_the_program(forks: WarmForks, body: str) -> None:
    assert outcome(forks, checked(body), "def f(x):\n    return 0\n").status in ("success", "api_error")


def test_numpys_random_numbers_are_the_same_in_each_pass(forks: WarmForks) -> None:
    pytest.importorskip("numpy")
    with_numpy = WarmForks("numpy")
    tests = adding("import numpy\nx = int(numpy.random.randint(10**9))\nassert f(x) == 2 * x", entry="f")

    def execute(mode: str, code: str, stdin: bytes) -> ProgramRun:
        return (with_numpy if mode == "assertions" else forks).run(mode, code, stdin)

    judged = judge(tests, TWICE, execute=execute)
    with_numpy.close()
    assert judged.statuses == ["success"], judged.outcomes
    assert len(judged.batches) == 1


MISSING = "the test itself fails: ModuleNotFoundError: No module named 'no_such_package'"


@pytest.mark.parametrize(
    "tests",
    [
        AssertTests(["assert np.allclose(f(1), 2)"], "import no_such_package as np", "f"),
        AssertTests(["import no_such_package\nassert f(1) == 2", "assert f(2) == 4"], "", "f"),
        AssertTests(["x = f(1)\nimport no_such_package\nassert x == 2"], "", "f"),
        CheckTest("", "import no_such_package\ndef check(candidate):\n    assert candidate(1) == 2\n", "f"),
        checked("x = candidate(1)\nimport no_such_package\nassert x == 2"),
        CheckTest("import no_such_package\ndef f(x):\n", "def check(candidate):\n    assert candidate(1) == 2\n", "f"),
    ],
)
@pytest.mark.parametrize("code", [TWICE, "def f(x):\n    return 0\n", "import sys\nsys.exit()\n"])
def test_a_test_that_lacks_a_module_fails_by_itself_whatever_the_answer(
    tests: AssertTests | CheckTest, code: str, forks: WarmForks
) -> None:
    judged = judge(tests, code, execute=forks.run)
    assert {(each.status.value, each.reason) for each in judged.outcomes} == {("api_error", MISSING)}


def test_an_import_that_the_test_does_without_is_none_of_its_failures(forks: WarmForks) -> None:
    test = "try:\n    import no_such_package\nexcept ImportError:\n    pass\nassert f(1) == 2"
    assert statuses(forks, AssertTests([test], "", "f"), TWICE) == ["success"]
    raised = "try:\n    f(0)\n    assert False\nexcept ImportError:\n    pass"
    assert statuses(forks, AssertTests([raised], "", "f"), "def f(x):\n    import no_such_package") == ["success"]
    assert statuses(forks, AssertTests(["assert f(1)"], "", "f"), "import no_such_package") == ["runtime_error"]
