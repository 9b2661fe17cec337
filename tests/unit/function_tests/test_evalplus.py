"""EvalPlus' problems judged: each verdict is the one that EvalPlus' rules give."""

from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_data.formats.evalplus import parse_evalplus
from evalrun_data.records import CheckTest as RecordedCheck
from evalrun_data.rows import Row
from evalrun_judge.submission import CheckTest

MEAN: dict[str, object] = {
    "task_id": "HumanEval/900",
    "prompt": "def f(xs):\n",
    "entry_point": "f",
    "canonical_solution": "    return sum(xs) / len(xs)\n",
    "base_input": [[[1, 2]]],
    "plus_input": [[[1.5, 2, 7]]],
    "atol": 0,
}
ROOT = {
    **MEAN,
    "task_id": "HumanEval/32",
    "canonical_solution": "    return -xs[0] / xs[1]\n",
    "plus_input": [[[4, 2]]],
    "atol": 1e-4,
}
ORDER = {
    **MEAN,
    "task_id": "HumanEval/901",
    "canonical_solution": "    return sorted(xs)\n",
    "base_input": [[[2, 1]]],
    "plus_input": [[[]]],
}
SHARED = {
    **MEAN,
    "task_id": "Mbpp/2",
    "prompt": '"""\nGive what two tuples share.\n"""\n',
    "canonical_solution": "\ndef f(a, b): return tuple(set(a) & set(b))\n",
    "base_input": [[[1, 2], [2, 3]]],
    "plus_input": [[[1, 2], [1, 2]]],
}
MATCH = {
    **MEAN,
    "task_id": "Mbpp/902",
    "prompt": '"""\nSay whether there is an a.\n"""\n',
    "entry_point": "check_str",
    "canonical_solution": "\nimport re\ndef check_str(s): return re.search('a', s)\n",
    "base_input": [["a"], ["b"]],
    "plus_input": [["ba"]],
}


def sent_of(row: dict[str, object], dataset: str | None = None) -> CheckTest:
    test = parse_evalplus(Row(row, "file", 1), dataset).ground_truth
    assert isinstance(test, RecordedCheck)
    return CheckTest(test.prompt, test.test, test.entry_point)


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    running = WarmForks()
    yield running
    running.close()


@pytest.mark.parametrize(
    ("row", "dataset", "code", "accepted"),
    [
        pytest.param(MEAN, None, "def f(xs): return sum(xs) / len(xs)", True, id="right"),
        pytest.param(MEAN, None, "def f(xs): return 0.0", False, id="wrong on base"),
        pytest.param(MEAN, None, "def f(xs): return 1.5", False, id="wrong only on plus"),
        pytest.param(MEAN, "humaneval_plus_base", "def f(xs): return 1.5", True, id="wrong only on plus, base asked"),
        pytest.param(MEAN, None, "def f(xs): return sum(xs) / len(xs) + 1e-7", True, id="floats within 1e-6"),
        pytest.param(MEAN, None, "def f(xs): return sum(xs) / len(xs) + 1e-5", False, id="floats beyond 1e-6"),
        pytest.param(MEAN, None, "def f(xs): return str(sum(xs) / len(xs))", False, id="another type"),
        pytest.param(MEAN, None, "def f(xs): raise ValueError", False, id="an exception"),
        pytest.param(MEAN, None, "def f(xs):\n  m = sum(xs) / len(xs)\n  xs.clear()\n  return m", True, id="clears"),
        pytest.param(ORDER, None, "def f(xs): return sorted(xs)", True, id="lists"),
        pytest.param(ORDER, None, "def f(xs): return tuple(sorted(xs))", False, id="a tuple for a list"),
        pytest.param(ORDER, None, "def f(xs): return sorted(xs) or [0]", False, id="an empty list only on plus"),
        pytest.param(ROOT, None, "def f(xs): return -xs[0] / xs[1] + 1e-5", True, id="any root within atol"),
        pytest.param(ROOT, None, "def f(xs): return -xs[0] / xs[1] + 1e-3", False, id="no root within atol"),
        pytest.param(SHARED, None, "def f(a, b): return [x for x in b + () if x in a]", True, id="sets"),
        pytest.param(SHARED, None, "def f(a, b): return list(b)", False, id="another set"),
        pytest.param(MATCH, None, "import re\ndef check_str(s): return re.search('a', s)", True, id="a match"),
        pytest.param(MATCH, None, "def check_str(s): return 'a' in s", True, id="true for a match"),
        pytest.param(MATCH, None, "def check_str(s): return 'b' in s", False, id="true for none"),
    ],
)  # fmt: skip
def test_verdict_equals_that_of_evalplus(
    forks: WarmForks, row: dict[str, object], dataset: str | None, code: str, accepted: bool
) -> None:
    (outcome,) = judge(sent_of(row, dataset), code, execute=forks.run).outcomes
    assert outcome.status in (("success",) if accepted else ("wrong_answer", "runtime_error"))
    assert outcome.forgeable is None


AGREES = "class {name}:\n  __init__ = lambda *a: None\n  __eq__ = lambda *a: True\n  __hash__ = lambda s: 1\n"


@pytest.mark.parametrize("made", ["", "def Diff(xs): return Agrees()", "def Diff(xs): return [Agrees()]"])
def test_object_that_equals_everything_fails_for_a_function_with_a_capital(forks: WarmForks, made: str) -> None:
    """The assertions take such a name for a class, whose objects answer `==` for themselves."""
    row = {**MEAN, "prompt": "def Diff(xs):\n", "entry_point": "Diff", "canonical_solution": "    return [1.5]\n"}
    code = AGREES.format(name="Agrees" if made else "Diff") + made
    assert judge(sent_of(row, None), code, execute=forks.run).statuses == ["wrong_answer"]
    assert judge(sent_of(row, None), "def Diff(xs): return [1.5]", execute=forks.run).statuses == ["success"]


@pytest.mark.parametrize(
    ("number", "given", "expected"),
    [
        (116, [[1], [2]], ((1,), (2,))),
        (63, [[[1, 2]]], ([(1, 2)],)),
        (75, [[[1]], 2], ([(1,)], 2)),
        (106, [[1], [2]], ([1], (2,))),
        (115, [[[1], []]], ([{1}, {}],)),
        (124, ["1", "1+2j"], (1.0, 1 + 2j)),
        (252, ["1+2j"], (1 + 2j,)),
        (259, [[[1, 2]]], (((1, 2),),)),
        (278, [[1, [2, 3]]], ((1, (2, 3)),)),
        (307, [[1], [2], 3], ((1,), [2], 3)),
        (580, [[1, [2]]], ((1, (2,)),)),
        (722, [{"a": [1, 2]}, 3], ({"a": (1, 2)}, 3)),
        (900, [[1]], ([1],)),
    ],
)
def test_mbpp_inputs_have_the_types_that_json_lost(
    forks: WarmForks, number: int, given: list[object], expected: tuple[object, ...]
) -> None:
    solution = f"\ndef f(*args): return {expected!r}.__repr__()\n"
    row = {
        **SHARED,
        "task_id": f"Mbpp/{number}",
        "canonical_solution": solution,
        "base_input": [given],
        "plus_input": [],
    }
    tests = sent_of(row)
    assert judge(tests, "def f(*args): return repr(args)", execute=forks.run).statuses == ["success"]
    assert judge(tests, "def f(*args): return repr(list(args))", execute=forks.run).statuses == ["wrong_answer"]
