"""Mutants of a reference: each is another program, says where its fault is, and does something else."""

import pytest

from evalrun_data.mutants import mutants

CLAMP = '''\
def clamp(x, low=0, high=10):
    """Keep x in bounds."""
    if x < low or x > high:
        return low if x < low else high
    return x
'''


def test_each_mutant_has_one_fault_and_names_it() -> None:
    found = {mutant.change: mutant.code for mutant in mutants(CLAMP, 100)}
    assert "line 3: x < low became x <= low" in found
    assert "line 3: x < low or x > high became x < low and x > high" in found
    assert "line 1: 10 became 11" in found
    assert found["line 5: return x became return"].rstrip().endswith("return")
    assert all("Keep x in bounds" in code for code in found.values()), "a doc string computes nothing"
    assert len(set(found.values())) == len(found)


def test_mutants_compute_something_else() -> None:
    def results(code: str) -> list[object]:
        space: dict[str, object] = {}
        exec(code, space)
        clamp = space["clamp"]
        assert callable(clamp)
        return [clamp(x) for x in range(-2, 14)]

    reference = results(CLAMP)
    equal = [mutant.change for mutant in mutants(CLAMP, 100) if results(mutant.code) == reference]
    # At x == high both branches give it, and line 4 never meets x == low: no test can tell these from the reference.
    assert sorted(equal) == [
        "line 3: high became high - 1",
        "line 3: x > high became x >= high",
        "line 3: x became x + 1",
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
def test_faults_of_loops_bounds_and_calls(change: str) -> None:
    assert change in {mutant.change for mutant in mutants(SUMS, 1000)}


def test_a_formatted_text_keeps_its_parts() -> None:
    assert {mutant.change for mutant in mutants("def f(x):\n    return f'{x + 1} of {x:>5}'\n", 100)} >= {
        "line 2: x + 1 became x - 1",
        "line 2: 1 became 2",
    }


def test_a_change_without_effect_is_no_mutant() -> None:
    assert [mutant.change for mutant in mutants("x = 0 * 2\n", 100)] == [
        "line 1: x = 0 * 2 became pass",
        "line 1: 0 * 2 became 0 + 2",
        "line 1: 0 became -1",
    ], "0 * 3 and 0 * 1 are the reference, and 1 * 2 is 0 + 2"
    assert mutants('"""only text"""\n', 100) == []


def test_of_many_mutants_some_are_taken_from_all_over_the_program() -> None:
    code = "".join(f"a{n} = {n}\n" for n in range(50))
    lines = [int(mutant.change.partition(":")[0].removeprefix("line ")) for mutant in mutants(code, 10)]
    assert len(lines) == 10
    assert (min(lines), max(lines)) <= (5, 50)
    assert max(lines) > 40


def test_what_is_not_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        mutants("int main() {}", 5)
