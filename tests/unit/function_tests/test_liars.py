"""Objects that lie pass no test: of HumanEval, MBPP, and of the shapes of EvalPlus, LiveCodeBench and APPS.

`make test-liars` judges some 30 of them on every problem; the plain run two on every eighth. HumanEval+ and MBPP+ are
judged as published where EVALRUN_TEST_PUBLISHED_ROWS has their files.
"""

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.data import ALL_DATA, data_file, json_rows
from builders.judge.evalplus_shapes import PUBLISHED
from builders.judge.function_tests import Judged, WarmForks, check_of, judge
from builders.judge.liars import METHODS, PLACES, constants, liars, subsets

from evalrun_data.formats.calls import Call, call_tests
from evalrun_data.formats.evalplus import parse_evalplus
from evalrun_data.rows import Row
from evalrun_judge.submission import AssertTests, CheckTest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600 if ALL_DATA else 600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
]

SECONDS = 4.0
EACH = 30 if ALL_DATA else 2
STEP = 1 if ALL_DATA else 8

Tests = CheckTest | AssertTests


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


def accepted(judged: Judged) -> bool:
    return all(outcome.status == "success" for outcome in judged.outcomes)


def believed(forks: WarmForks, problems: dict[str, Tests], each: int) -> tuple[list[str], int]:
    """Name the liars that were accepted and not called forgeable, and count all."""
    execute = functools.partial(forks.run, seconds=SECONDS)
    found, count = [], 0
    endless = liars()
    for name, tests in problems.items():
        recorded = None
        for liar in itertools.islice(endless, each):
            judged = judge(tests, liar.program(tests.entry_point), execute=execute, recorded=recorded)
            recorded, count = judged.recording, count + 1
            if accepted(judged) and not judged.forgeable:
                plain = (judge(tests, text, execute=execute) for text in constants(tests.entry_point))
                if not any(map(accepted, plain)):
                    found.append(f"{name}: {liar}")
    return found, count


def humaneval() -> dict[str, Tests]:
    rows = json_rows(data_file("humaneval/HumanEval.jsonl.gz"))
    return {str(row["task_id"]): check_of(row) for row in rows[::STEP]}


def mbpp() -> dict[str, Tests]:
    found: dict[str, Tests] = {}
    for row in json_rows(data_file("mbpp/mbpp.jsonl.gz"))[10:210:STEP]:
        asserts = row["test_list"]
        assert isinstance(asserts, list)
        entry = asserts[0].split("(", 2)[0].removeprefix("assert ").strip()
        if entry.isidentifier():
            found[f"MBPP/{row['task_id']}"] = AssertTests(asserts, str(row["test_setup_code"]), entry)
    return found


def evalplus() -> dict[str, Tests]:
    return {f"{each.task} {each.shows}": _as_submitted(each.test()) for each in PUBLISHED}


def published(name: str) -> dict[str, Tests]:
    """Return the problems of a file of EvalPlus' own."""
    file = Path(os.environ.get("EVALRUN_TEST_PUBLISHED_ROWS", ""), name)
    if not file.is_file():
        pytest.skip(f"no {name} in EVALRUN_TEST_PUBLISHED_ROWS")
    rows = [Row(values, str(file), number) for number, values in enumerate(json_rows(file), 1)]
    problems = [parse_evalplus(row, None) for row in rows[::STEP]]
    return {problem.problem_id: _as_submitted(problem.ground_truth) for problem in problems}


def _as_submitted(tests: object) -> Tests:
    return CheckTest(getattr(tests, "prompt"), getattr(tests, "test"), getattr(tests, "entry_point"))  # noqa: B009


CALLS = {
    "a number": ([[1, 2]], 3), "a list": ([[3, 1], 2], [1, 3]), "a text": (["ab"], "ba"), "true": ([4], True),
    "a table": ([2], [[1, 0], [0, 1]]), "a fraction": ([1, 3], 0.3333333333333333), "nothing": ([0], None),
    "an empty list": ([[]], []), "a dict": (["aab"], {"a": 2, "b": 1}),
}  # fmt: skip
"""Arguments and the expected value of a call: row shapes of LiveCodeBench and APPS, with our own content."""


def calls(starter: str, rules: str) -> dict[str, Tests]:
    found: dict[str, Tests] = {}
    for name, (arguments, expected) in CALLS.items():
        call = Call(json.dumps(arguments), json.dumps(expected))
        recorded = call_tests(Row({}, "file", 1), "solve", [call, call], starter, rules)  # type: ignore[arg-type]
        found[f"{rules} {name}"] = AssertTests(recorded.test_list, recorded.test_setup_code, recorded.entry_point)
    return found


SETS: dict[str, Callable[[], dict[str, Tests]]] = {
    "humaneval": humaneval,
    "mbpp": mbpp,
    "evalplus": evalplus,
    "humaneval+": lambda: published("HumanEvalPlus.jsonl.gz"),
    "mbpp+": lambda: published("MbppPlus.jsonl.gz"),
    "livecodebench": lambda: calls("class Solution:\n    def solve(self, x): pass\n", "livecodebench"),
    "apps": lambda: calls("", "apps"),
    "apps-class": lambda: calls("class Solution:\n    def solve(self, x): pass\n", "apps"),
}


FEWER = ("humaneval", "mbpp", "humaneval+", "mbpp+", *(() if ALL_DATA else ("evalplus",)))
"""Sets of many problems, or of such whose tests take half a second of CPU."""


@pytest.mark.parametrize("name", SETS)
def test_no_liar_is_accepted(forks: WarmForks, name: str) -> None:
    problems = SETS[name]()
    found, count = believed(forks, problems, EACH if name in FEWER else 2 * EACH)
    assert found == []
    assert count >= len(problems) * EACH


CLASS_TESTS = AssertTests(
    ["assert Stack().pop() == 2", "s = Stack(); s.push(3)\nassert s.size == 1", "assert [*Stack()] == [1, 2]"],
    "",
    "Stack",
)


def test_liars_among_the_results_of_a_class_are_not_accepted(forks: WarmForks) -> None:
    found = []
    for liar in itertools.islice(liars(1), 200 if ALL_DATA else 20):
        head, _, _ = liar.program("unused").rpartition("def unused")
        program = f"{head}class Stack:\n    size = made()\n    def push(self, x): pass\n"
        program += f"    def pop(self): {PLACES[liar.place]}\n    def __iter__(self): return iter([made(), made()])\n"
        judged = judge(CLASS_TESTS, program, execute=functools.partial(forks.run, seconds=SECONDS))
        if any(outcome.status == "success" and outcome.forgeable is None for outcome in judged.outcomes):
            found.append(str(liar))
    assert found == []


def test_liars_cover_every_method_alone_and_every_pair() -> None:
    first = list(itertools.islice(subsets(0), 1 + 2 * len(METHODS) + len(METHODS) * (len(METHODS) - 1) // 2))
    assert len(set(first)) == len(first)
    assert {(name,) for name in METHODS} <= set(first)
    assert len(METHODS) >= 30


def test_liar_is_accepted_and_marked_forgeable_if_the_test_asks_its_operators(forks: WarmForks) -> None:
    """The test can fail: a test that asks the program's object itself accepts a liar, which is `forgeable`."""
    tests = AssertTests(["assert E2() == 5"], "", "E2")
    judged = judge(tests, "class E2:\n    def __eq__(self, other): return True\n", execute=forks.run)
    assert accepted(judged)
    assert judged.forgeable == ["own_operators"]
