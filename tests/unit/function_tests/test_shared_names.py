"""What tests define: later asserts and the program have it as under a judge that runs all in one namespace."""

from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_judge.function_tests.session import AssertTests, CheckTest

STACK = """
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def pop(self): return self.items.pop()
"""
QUEUE = STACK.replace("pop()", "pop(0)")


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


@pytest.mark.parametrize(
    ("asserts", "program", "statuses"),
    [
        pytest.param(
            ["s = Stack()", "s.push(1); s.push(2)", "assert s.pop() == 2", "assert s.pop() == 1"],
            STACK, "success success success success", id="each goes on with what the ones before left",
        ),
        pytest.param(
            ["s = Stack()", "s.push(1); s.push(2)", "assert s.pop() == 2", "assert s.pop() == 1"],
            QUEUE.replace("def pop", "def get"), "success success wrong_answer wrong_answer",
            id="a method that is missing",
        ),
        pytest.param(
            ["s = Stack()", "s.push(1); s.push(2)", "assert s.pop() == 2"], QUEUE, "success success wrong_answer",
            id="a wrong one",
        ),
        pytest.param(
            ["import math", "assert abs(f(1) - math.pi) < 1e-9"], "import math\ndef f(x): return math.pi",
            "success success", id="an import of an earlier one",
        ),
        pytest.param(
            ["given = [1, 2]", "want = sum(given)", "assert f(given) == want", "assert f([]) == 0"],
            "def f(xs): return sum(xs)", "success success success success", id="what was needed for what is needed",
        ),
        pytest.param(
            ["x = f()\nassert x == 1", "assert x == 1", "y = f()", "assert (x, y) == (1, 2)"],
            "n = 0\ndef f():\n  global n\n  n += 1\n  return n", "success success success success",
            id="a program with a state",
        ),
        pytest.param(
            ["s = Stack()", "assert s.push(1) == 7", "assert s.pop() == 1"], STACK, "success wrong_answer success",
            id="an earlier assert that fails is judged by itself",
        ),
        pytest.param(
            ["x = f(1)\nassert x == 1", "x = f(2)\nassert x == 2"], "def f(n): return 1", "success wrong_answer",
            id="a name that each binds for itself",
        ),
    ],
)  # fmt: skip
def test_asserts_see_names_bound_by_earlier_asserts(
    forks: WarmForks, asserts: list[str], program: str, statuses: str
) -> None:
    entry = "Stack" if "Stack" in asserts[0] else "f"
    assert judge(AssertTests(asserts, "", entry), program, execute=forks.run).statuses == statuses.split()


SHARED = {
    "a constant": ("LIMIT = 10", "def f(x): return min(x, LIMIT)", "assert f(99) == 10"),
    "a table": ("NAMES = {1: 'one'}", "def f(x): return NAMES[x]", "assert f(1) == 'one'"),
    "a helper": ("def twice(x): return 2 * x", "def f(x): return twice(x) + 1", "assert f(2) == 5"),
    "a helper that uses a constant": (
        "BASE = 7\ndef shift(x): return x + BASE",
        "def f(x): return shift(x)",
        "assert f(1) == 8",
    ),
    "an import": ("import math", "def f(x): return math.sqrt(x)", "assert f(4) == math.sqrt(4)"),
    "names of a module": ("from math import gcd", "def f(a, b): return gcd(a, b)", "assert f(4, 6) == 2"),
    "what a call gives": ("PRIMES = list(range(2, 4))", "def f(): return PRIMES", "assert f() == [2, 3]"),
}


@pytest.mark.parametrize("form", ["setup", "one text", "check"])
@pytest.mark.parametrize("name", SHARED)
def test_names_defined_by_the_tests_for_the_program_are_visible_to_the_program(
    forks: WarmForks, name: str, form: str
) -> None:
    definition, program, test = SHARED[name]
    forms: dict[str, AssertTests | CheckTest] = {
        "setup": AssertTests([test], definition, "f"),
        "one text": AssertTests([f"{definition}\n{test}"], "", "f"),
        "check": CheckTest("def f(*args):\n", f"{definition}\ndef check(candidate):\n    {test}\n", "f"),
    }
    tests = forms[form]
    assert judge(tests, program, execute=forks.run).statuses == ["success"]
    wrong = "def f(*args): return None"
    assert judge(tests, wrong, execute=forks.run).statuses == ["wrong_answer"]


@pytest.mark.parametrize(
    ("asserts", "setup", "program"),
    [
        (["assert f(2) == WANTED"], "WANTED = 4", "def f(x): return WANTED"),
        (["want = [1, 4]\nassert [f(1), f(2)] == want"], "", "def f(x): return want[x - 1]"),
        (["assert f(3) == reference(3)"], "def reference(x): return x * x", "def f(x): return reference(x)"),
        (["A = 1\nA = 2\nassert f() == 2"], "", "def f(): return A"),
    ],
)
def test_names_used_by_assertions_stay_hidden_and_a_program_that_needs_one_fails(
    forks: WarmForks, asserts: list[str], setup: str, program: str
) -> None:
    """Whether a problem is judged may not hang on the answer."""
    found = judge(AssertTests(asserts, setup, "f"), program, execute=forks.run)
    assert found.statuses == ["runtime_error"]
    assert "which only the test defines, and its assertions use" in found.outcomes[0].reason


LIST_NODE = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next
def build(xs):
    return ListNode(xs[0], build(xs[1:])) if xs else None
def values(node):
    return [node.val, *values(node.next)] if node else []
"""
REVERSED = """
def f(head):
    before = None
    while head:
        before = ListNode(head.val, before)
        head = head.next
    return before
"""
POINT = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0
"""


@pytest.mark.parametrize("form", ["one text", "check"])
@pytest.mark.parametrize(
    ("definition", "test", "program", "status"),
    [
        (LIST_NODE, "assert values(f(build([1, 2, 3]))) == [3, 2, 1]", REVERSED, "success"),
        (LIST_NODE, "assert values(f(build([1, 2, 3]))) == [3, 2, 1]", "def f(head): return head", "wrong_answer"),
        (LIST_NODE, "assert values(f(build([1, 2]))) == [2, 1]", LIST_NODE + REVERSED, "success"),
        (LIST_NODE, "assert isinstance(f(1), ListNode)", "def f(n): return ListNode(n)", "success"),
        (POINT, "assert f(Point(1, 2)) == Point(2, 1)", "def f(p): return Point(p.y, p.x)", "success"),
        (POINT, "assert f(Point(1, 2)) == Point(2, 1)", "def f(p): return p", "wrong_answer"),
        (POINT, "assert {f(1): 'a'}[Point(1)] == 'a'", "def f(x): return Point(x)", "success"),
    ],
)
def test_a_class_of_data_that_the_test_defines_is_one_of_the_program_too(
    forks: WarmForks, definition: str, test: str, program: str, status: str, form: str
) -> None:
    forms: dict[str, AssertTests | CheckTest] = {
        "one text": AssertTests([f"{definition}\n{test}"], "", "f"),
        "check": CheckTest("", f"{definition}\ndef check(candidate):\n    f = candidate\n    {test}\n", "f"),
    }
    found = judge(forms[form], program, execute=forks.run)
    assert found.statuses == [status], found.outcomes[0].reason


@pytest.mark.parametrize(
    "reference",
    [
        "class Answer:\n    def __call__(self, x): return x * x",
        "class Answer:\n    def square(self, x): return x * x",
        "class Answer:\n    table = {3: 9}",
        "class Answer:\n    pairs: object = (3, 9)",
        "class Answer:\n    def __init__(self): self.of = {3: 9}",
    ],
)
def test_class_that_may_hold_expected_values_stays_hidden_from_the_program(forks: WarmForks, reference: str) -> None:
    tests = AssertTests([f"{reference}\nassert f(3) == 9 and Answer"], "", "f")
    found = judge(tests, "def f(x): return 9 if Answer else 0", execute=forks.run)
    assert found.statuses == ["runtime_error"]


def test_unknown_name_of_the_program_is_a_runtime_error(forks: WarmForks) -> None:
    for tests in (AssertTests(["assert f(1) == 1"], "LIMIT = 3", "f"),
                  CheckTest("", "def check(candidate):\n    assert candidate(1) == 1\n", "f")):  # fmt: skip
        for name in ("nowhere", "check", "candidate"):
            if name == "nowhere" or isinstance(tests, CheckTest):
                assert judge(tests, f"def f(x): return {name}", execute=forks.run).statuses == ["runtime_error"]
