"""Varied arguments, and the tests that compare a function with its reference on them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_data.records import AssertTests, CheckTest, Problem, StdioTests
from evalrun_data.suites.varied_arguments import MAX_STEPS, answer_varied, check_varied, vary_calls
from evalrun_data.suites.varied_tests import vary_problem
from evalrun_judge.submission import CheckTest as SentCheck

MOST = "def most(xs, least=0):\n    for x in xs:\n        least = max(least, x)\n    return least\n"
TESTS = ["assert most([1, 3, 2], 1) == 3", "assert most([5, 4], 9) == 9"]


def function(code: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(code, space)
    found: Callable[..., Any] = next(each for each in space.values() if callable(each))
    return found


def test_vary_calls_stays_within_the_values_of_the_tests() -> None:
    found = vary_calls([[[3, 1], "ab"], [[2, 2], "ba"]], 1000)
    assert ([1], "ab") in [tuple(call) for call in found]
    assert ([3, 1], "ba") in [tuple(call) for call in found], "an argument of another call"
    assert [[3, 1], "ab"] not in found
    assert min(number for numbers, _ in found for number in numbers) == 1, "all were positive"
    assert {letter for _, text in found for letter in text} == set("ab")
    assert len({repr(call) for call in found}) == len(found)
    assert len(vary_calls([[[3, 1], "ab"], [[2, 2], "ba"]], 7)) == 7


@pytest.mark.parametrize(
    ("value", "among"),
    [
        (5, [4, 6, 10, 2, 1]),
        (-2, [2, 0]),
        (2.5, [2.0, 3.0, 1.5]),
        (True, [False]),
        ("aB", ["B", "a", "Ba", "AB", "Ab"]),
        ([2, 1], [[1, 2], [1], [], [2, 1, 2], [3, 1]]),
        ((2, 1), [(1, 2), ()]),
        ({1, 2}, [{1}, {2}]),
        ({"a": 1}, [{}, {"a": 2}]),
        ([[1, 2], [3]], [[[2], [3]], [[3], [1, 2]]]),
        (None, []),
    ],
)
def test_vary_calls_keeps_the_type_of_each_value(value: object, among: list[object]) -> None:
    found = [each for (each,) in vary_calls([[value]], 1000)]
    assert all(each in found for each in among)
    assert {type(each) for each in found} <= {type(value)}


def test_vary_calls_of_more_calls_than_the_limit_fills_the_limit() -> None:
    assert len(vary_calls([[[number]] for number in range(700)], 50)) == 50


def test_check_varied_passes_the_reference_and_equivalent_functions() -> None:
    check_varied(function(MOST), MOST, TESTS, "most")
    check_varied(lambda xs, least=0: max([least, *xs]), MOST, TESTS, "most")


@pytest.mark.parametrize(
    "code",
    [
        "def most(xs, least=0):\n    return max(xs)",  # not for a list whose largest is below `least`
        "def most(xs, least=0):\n    return max(least, max(xs))",  # raises without elements
        "def most(xs, least=0):\n    return max(least, *xs) if xs != sorted(xs) else None",
    ],
)
def test_function_differing_on_varied_argument_fails(code: str) -> None:
    with pytest.raises(AssertionError, match="differs from the reference"):
        check_varied(function(code), MOST, TESTS, "most")


def test_arguments_without_a_usable_answer_of_the_reference_are_left_out() -> None:
    program = (
        "def f(n):\n    while n == 4:\n        pass\n    if n == 6: raise ValueError\n    return None if n == 10 else n"
    )
    found, _ = answer_varied(program, ["assert f(5) == 5"], "f")
    assert ([7], 7) in found
    assert not {4, 6, 10} & {call[0] for call, _ in found}, "too long, raises, another type"


def test_too_many_steps_are_counted_in_functions_loops_and_comprehensions() -> None:
    for body in (
        "return sum(1 for _ in range(n * 9))",
        "total = 0\n    for i in range(n * 9): total += 1\n    return total",
        "g = lambda: 1\n    def once(): return 1\n    return sum(map(lambda _: once(), range(n * 9)))",
    ):
        found, _ = answer_varied(f"def f(n):\n    {body}", [f"assert f({MAX_STEPS // 12}) != -1"], "f")
        assert [MAX_STEPS // 24] in [call for call, _ in found]
        assert [MAX_STEPS // 6] not in [call for call, _ in found]


def test_the_reference_s_own_calls_of_itself_are_no_calls_of_the_tests() -> None:
    program = "def f(n, seen=()):\n    return len(seen) if n == 0 else f(n - 1, (*seen, n))"
    found, _ = answer_varied(program, ["assert f(3) == 3"], "f")
    assert {len(call) for call, _ in found} == {1}


def test_check_varied_ignores_list_order_only_if_the_tests_do() -> None:
    program = "def shared(a, b):\n    return [x for x in a if x in b]"
    turned = function("def shared(a, b):\n    return [x for x in a if x in b][::-1]")
    check_varied(turned, program, ["assert set(shared([1, 2, 3], [3, 2])) == {2, 3}"], "shared")
    with pytest.raises(AssertionError):
        check_varied(turned, program, ["assert shared([1, 2, 3], [3, 2]) == [2, 3]"], "shared")


def test_check_varied_accepts_rounding_errors_only() -> None:
    program = "def third(x):\n    return x / 3"
    check_varied(lambda x: x / 3 + 1e-9, program, ["assert third(2.0) > 0"], "third")
    with pytest.raises(AssertionError):
        check_varied(lambda x: x / 3 + 1e-3, program, ["assert third(2.0) > 0"], "third")


def test_without_arguments_no_program_passes() -> None:
    with pytest.raises(AssertionError, match="no arguments could be varied"):
        check_varied(lambda: 1, "def one():\n    return 1", ["assert one() == 1"], "one")


CHECKED = Problem(
    "humaneval", "0", "", CheckTest("", "def check(candidate):\n    assert candidate([1, 3, 2], 1) == 3\n", "most")
)


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    server = WarmForks()
    yield server
    server.close()


@pytest.mark.parametrize("form", [CHECKED, replace(CHECKED, ground_truth=AssertTests(tuple(TESTS), "", "most"))])
def test_the_tests_run_where_assertions_do(form: Problem, forks: WarmForks) -> None:
    varied = vary_problem(form, MOST)
    assert varied is not None
    assert varied.key == form.key
    truth = varied.ground_truth
    assert isinstance(truth, CheckTest)
    for code, accepted in ((MOST, True), (MOST.replace("max(least, x)", "x"), False)):
        (test,) = judge(SentCheck(truth.prompt, truth.test, truth.entry_point), code, execute=forks.run).outcomes
        assert (test.status.name == "SUCCESS") == accepted, test


def test_only_tests_that_call_a_function_are_varied() -> None:
    assert vary_problem(replace(CHECKED, ground_truth=StdioTests(("1",), ("2",))), MOST) is None
