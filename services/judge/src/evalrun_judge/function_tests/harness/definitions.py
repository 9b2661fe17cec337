"""Finds the top-level definitions of tests that later tests need, and those that the program may see."""

from __future__ import annotations

import builtins

from evalrun_executor.calls.originals import Json, Value
from evalrun_judge.function_tests.harness.source import bound_by, get_decorated_text, names_in, parse, walk

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
else:
    import _ast as ast

_BUILTIN = frozenset(vars(builtins)) | {"__name__"}


def preambles(tests: dict[str, str]) -> dict[str, str]:
    """Return the text of all earlier tests for each test that uses a name bound by an earlier test.

    The usual judges run the asserts of a problem one after the other in one namespace and one process: `s = Stack()`,
    then `assert s.push(1) is None`, then `assert s.pop() == 1`. A test between them that does not use the name may
    still have changed its value, so the text of all earlier tests is returned.
    """
    bound: set[str] = set()
    before: list[str] = []
    found: dict[str, str] = {}
    for index, text in tests.items():
        inside: set[str] = set()
        tree = parse(text)
        loaded = names_in(walk(tree), inside)
        if (loaded - inside) & bound:
            found[index] = "\n".join([*before, ""])
        bound |= {name for statement in tree.body for name in bound_by(statement)}
        before.append(text)
    return found


def definitions(texts: list[str], taken: set[str]) -> tuple[list[Json], set[str]]:
    """Return what the tests define for the program alone, as `[names, text]` in order, and the names of all the rest.

    A constant or a function that no assertion uses can only be meant for the program. Definitions that assertions use
    may hold an expected value, so they are kept back. Imports reveal nothing and are for both sides.

    Args:
        texts: the setup, and the tests.
        taken: names that the program has anyway, or may not have.
    """
    statements = [(text, statement) for text in texts for statement in parse(text).body]
    bound = [bound_by(statement) for _, statement in statements]
    inner: list[set[str]] = [set() for _ in statements]
    loaded = [names_in(walk(statement), inside) for (_, statement), inside in zip(statements, inner, strict=True)]
    everything = [name for names in bound for name in names]
    # A name that is bound twice could stand for an expected value in one place and for a helper in the other.
    spare = {
        number
        for number, (_, statement) in enumerate(statements)
        if _defines(statement) and bound[number] and all(everything.count(name) == 1 for name in bound[number])
    }
    spare = {number for number in spare if not bound[number] & taken}
    # Keeping one definition back can make another one useless to the program or needed by an assertion. Repeat until
    # nothing changes.
    while True:
        has = _BUILTIN.union(taken, *(bound[number] for number in spare))
        needed = set().union(*(loaded[number] for number in range(len(statements)) if number not in spare))
        kept = {
            number
            for number in spare
            if loaded[number] - inner[number] <= has and (_imports(statements[number][1]) or not bound[number] & needed)
        }
        if kept == spare:
            break
        spare = kept
    made: list[Json] = [[sorted(bound[number]), get_decorated_text(*statements[number])] for number in sorted(spare)]
    given = {name for names, _ in made for name in names}
    return made, {*everything} - given - taken


def _imports(statement: Value) -> bool:
    return type(statement) in (ast.Import, ast.ImportFrom)


def _defines(statement: Value) -> bool:
    kind = type(statement)
    if kind is ast.Assign:
        return len(statement.targets) == 1 and type(statement.targets[0]) is ast.Name
    if kind is ast.AnnAssign:
        return type(statement.target) is ast.Name and statement.value is not None
    return kind is ast.FunctionDef or _imports(statement)
