"""Mutants of a reference: each is another program, says where its fault is, and does something else."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

from evalrun_data.suites.mutants import mutants

CLAMP = '''\
def clamp(x, low=0, high=10):
    """Keep x in bounds."""
    if x < low or x > high:
        return low if x < low else high
    return x
'''


def test_each_mutant_has_one_named_fault() -> None:
    found = {mutant.change: mutant.code for mutant in mutants(CLAMP, 1000)}
    assert "line 3: x < low became x <= low" in found
    assert "line 3: x < low or x > high became x < low and x > high" in found
    assert "line 1: 10 became 11" in found
    assert found["line 5: return x became return"].rstrip().endswith("return")
    assert all("Keep x in bounds" in code for code in found.values()), "a doc string computes nothing"
    assert len(set(found.values())) == len(found)


def test_mutants_compute_something_else() -> None:
    def result(clamp: Callable[[int], object], x: int) -> object:
        try:
            return clamp(x)
        except TypeError as error:
            return type(error)

    def results(code: str) -> list[object]:
        space: dict[str, object] = {}
        exec(code, space)
        clamp = space["clamp"]
        assert callable(clamp)
        return [result(clamp, x) for x in range(-2, 14)]

    reference = results(CLAMP)
    found = [mutant for mutant in mutants(CLAMP, 1000) if "returns nothing" not in mutant.change]
    equal = [mutant.change for mutant in found if results(mutant.code) == reference]
    # At x == high both branches give it, line 4 never meets x == low, and low is 0: no test can tell these from the
    # reference.
    assert sorted(equal) == [
        "line 3: high became abs(high)",
        "line 3: high became high - 1",
        "line 3: low became -low",
        "line 3: low became abs(low)",
        "line 3: x > high became x >= high",
        "line 3: x became abs(x)",
        "line 3: x became x + 1",
        "line 4: low became -low",
        "line 4: low became abs(low)",
        "line 4: low became high",
        "line 4: low became low + 1",
        "line 4: x < low became x <= low",
        "line 4: x became x - 1",
    ]


SUMS = """\
def sums(rows, n):
    total = 0
    for row in rows[1:n]:
        if not row: continue
        total += max(row)
    return sorted([r for r in range(n) if r in rows], reverse=True)
"""


@pytest.mark.parametrize(
    "change",
    [
        "line 3: rows[1:n] became rows[1:n - 1]",
        "line 3: rows[1:n] became rows[:n]",
        "line 3: for row in rows[1:n]: became for row in list(rows[1:n])[:-1]:",
        "line 4: if not row: became pass",
        "line 4: continue became break",
        "line 5: total += max(row) became total -= max(row)",
        "line 5: max(row) became min(row)",
        "line 6: range(n) became range(n + 1)",
        "line 6: for r in range(n) if r in rows became for r in range(n)",
        "line 6: sorted([r for r in range(n) if r in rows], reverse=True) became [r for r in range(n) if r in rows]",
    ],
)
def test_mutants_include_faults_of_loops_bounds_and_calls(change: str) -> None:
    assert change in {mutant.change for mutant in mutants(SUMS, 1000)}


WORDS = r"""
def words(text, least, most):
    found = [w for w in re.findall(r"^[a-z]+\d{2}$", text.lower()) if least <= len(w) <= most]
    total = least * 2
    return max(found) + str(total)
"""


@pytest.mark.parametrize(
    "change",
    [
        r"""line 3: '^[a-z]+\\d{2}$' became '[a-z]+\\d{2}$'""",
        r"""line 3: '^[a-z]+\\d{2}$' became '^[a-z]*\\d{2}$'""",
        r"""line 3: '^[a-z]+\\d{2}$' became '^[a-z]+\\w{2}$'""",
        "line 3: text.lower() became text.upper()",
        "line 3: least became most",
        "line 3: len(w) became abs(len(w))",
        "line 4: least became -least",
        "line 4: least * 2 became least ** 2",
        "line 4: 2 became 4",
        "line 5: max(found) became max(list(found)[1:])",
        "line 5: max(found) + str(total) became (max(found) + str(total))[::-1]",
    ],
)
def test_mutants_include_faults_of_variables_signs_patterns_and_similar_calls(change: str) -> None:
    assert change in {mutant.change for mutant in mutants(WORDS, 1000)}


def test_mutant_does_not_contain_the_fault_of_another() -> None:
    (alone,) = [mutant.code for mutant in mutants(CLAMP, 1000) if mutant.change == "line 3: x < low became x <= low"]
    assert alone == ast.unparse(ast.parse(CLAMP)).replace("x < low or", "x <= low or")


LONGEST = """
def longest(words, least):
    \"\"\"Return the longest word.\"\"\"
    return max([w for w in words if len(w) >= least], key=len, default="")
"""


@pytest.mark.parametrize(
    ("named", "inside", "outside"),
    [
        ("words with repeated elements", (["a", "b", "a"], 1), (["a", "b"], 1)),
        ("words not in order", (["b", "a"], 1), (["a", "b"], 1)),
        ("words in order", (["a", "b"], 1), (["b", "a"], 1)),
        ("least negative", (["a"], -1), (["a"], 0)),
        ("least odd", (["a"], 1), (["a"], 2)),
        ("least a fraction", (["a"], 0.5), (["a"], 1)),
    ],
)
def test_mutant_returns_nothing_for_one_class_of_inputs_alone(
    named: str, inside: tuple[Any, ...], outside: tuple[Any, ...]
) -> None:
    by_change = {mutant.change: mutant.code for mutant in mutants(LONGEST, 1000)}
    space: dict[str, Any] = {}
    exec(by_change[f"line 2: longest returns nothing: {named}"], space)
    assert space["longest"](*inside) is None
    assert space["longest"](*outside) is not None
    assert space["longest"].__doc__ == "Return the longest word."


@pytest.mark.parametrize("name", ["n", "each", "a", "b"])
def test_class_of_inputs_is_recognized_under_any_argument_name(name: str) -> None:
    by_change = {each.change: each.code for each in mutants(f"def f({name}):\n    return str({name})\n", 1000)}
    for said, inside, outside in (("with repeated elements", [1, 1], [1, 2]), ("not in order", [2, 1], [1, 2])):
        space: dict[str, Any] = {}
        exec(by_change[f"line 1: f returns nothing: {name} {said}"], space)
        assert (space["f"](inside), space["f"](outside)) == (None, str(outside))


def test_mutants_of_a_formatted_string_change_its_expressions() -> None:
    assert {mutant.change for mutant in mutants("def f(x):\n    return f'{x + 1} of {x:>5}'\n", 100)} >= {
        "line 2: x + 1 became x - 1",
        "line 2: 1 became 2",
    }


def test_change_without_effect_is_not_listed_as_a_mutant() -> None:
    assert [mutant.change for mutant in mutants("x = 0 * 2\n", 100)] == [
        "line 1: x = 0 * 2 became pass",
        "line 1: 0 * 2 became 0 + 2",
        "line 1: 0 became -1",
    ], "0 * 3 and 0 * 1 are the reference, and 1 * 2 is 0 + 2"
    assert mutants('"""only text"""\n', 100) == []


def test_mutants_above_the_limit_are_sampled_from_the_whole_program() -> None:
    code = "".join(f"a{n} = {n}\n" for n in range(50))
    lines = [int(mutant.change.partition(":")[0].removeprefix("line ")) for mutant in mutants(code, 10)]
    assert len(lines) == 10
    assert (min(lines), max(lines)) <= (5, 50)
    assert max(lines) > 40


def test_text_other_than_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        mutants("int main() {}", 5)
