"""Reads facts from a test's text without running it: what it shares with the program, and whether it is pure."""

from __future__ import annotations

import builtins

# HumanEval's prompts and tests import these modules. Imported here, ahead of the fork, they cost the children nothing.
import copy
import math
import random

# Importing `typing` takes 6 ms, in each of the 23 prompts that import it.
import typing

from evalrun_executor.calls.originals import Value
from evalrun_judge.function_tests.harness.source import bound_by, names_in, parse, walk

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
else:
    import _ast as ast

_PUBLIC = {
    "copy": frozenset(copy.__all__),
    "math": frozenset(vars(math)),
    "random": frozenset(random.__all__),
    "typing": frozenset(typing.__all__),
}
"""Modules that a pure test may import. Only the state of `random` can be changed among them, and it is seeded per test.
"""
_BARRED = frozenset(
    {
        *("breakpoint", "compile", "delattr", "eval", "exec", "exit", "getattr", "globals", "help", "input", "locals"),
        *("open", "quit", "setattr", "vars"),
    }
)
"""Builtins with which a test could reach more than its text shows."""
_INNARDS = ("_", "ag_", "cr_", "f_", "gi_", "tb_")
"""Prefixes of attribute names that lead out of a test: `__globals__`, `gi_frame.f_builtins`."""


_PLAIN_ATTRIBUTES = frozenset(
    name
    for kind in (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, type(None))
    for name in dir(kind)
)


def shows_a_class(name: str, tests: list[str]) -> bool:
    """Return whether the tests' text treats a name as a class.

    It does if a test calls the name without arguments, or uses an attribute of the result that no plain value has.
    """
    for test in tests:
        nodes = walk(parse(test))
        made = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and _makes(node.value, name)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and _makes(node, name) and not node.args and not node.keywords:
                return True
            if isinstance(node, ast.Attribute) and node.attr not in _PLAIN_ATTRIBUTES:
                owner = node.value
                if _makes(owner, name) or (isinstance(owner, ast.Name) and owner.id in {*made, name}):
                    return True
    return False


def _makes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.BinOp):
        return _makes(node.left, name) or _makes(node.right, name)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def find_caught_names(nodes: list[Value]) -> Iterator[str]:
    """Yield the names that stand for exceptions: after `except`, and in calls of `assertRaises` and its like."""
    for node in nodes:
        given: list[Value] = []
        if type(node) is ast.ExceptHandler and node.type is not None:
            given = node.type.elts if type(node.type) is ast.Tuple else [node.type]
        elif type(node) is ast.Call:
            named = node.func.attr if type(node.func) is ast.Attribute else getattr(node.func, "id", "")
            if named in ("assertRaises", "assertRaisesRegex", "raises") and node.args:
                given = node.args[0].elts if type(node.args[0]) is ast.Tuple else node.args[:1]
        for one in given:
            if type(one) is ast.Name:
                yield one.id


def find_shared_part(setup: ast.Module) -> list[ast.stmt]:
    """Return the parts of a test's text that the program may see: imports, and data classes that need nothing else.

    The rest may hold an expected value, in a reference solution or a table for example, and stays here.
    """
    found: list[ast.stmt] = []
    # A class may use only names that the program has as well: builtins, imports, and the shared classes above it.
    has = {*vars(builtins), "__name__"}
    for node in setup.body:
        if type(node) in (ast.Import, ast.ImportFrom):
            found.append(node)
            has |= bound_by(node)
        elif type(node) is ast.ClassDef and _holds_data_alone(node):
            inside: set[str] = {node.name}
            if names_in(walk(node), inside) - inside <= has:
                found.append(node)
                has.add(node.name)
    return found


def find_shared_data_classes(test: ast.Module) -> list[ast.stmt]:
    """Return the classes of a test's own text that only hold data, with the imports that they may need.

    `class ListNode` above `check` is the type of a program's arguments, and a program may name it. Other classes may be
    a reference solution.
    """
    found = find_shared_part(test)
    return found if any(type(node) is ast.ClassDef for node in found) else []


_OF_DATA = frozenset(
    f"__{name}__" for name in ("init", "post_init", "repr", "str", "eq", "ne", "lt", "le", "gt", "ge", "hash")
)
"""Methods that a class may have and still only hold data."""


_COMPUTES = (
    *(ast.BinOp, ast.IfExp, ast.Subscript, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.For, ast.While, ast.Match),
)


def _holds_data_alone(node: ast.ClassDef) -> bool:
    """Return whether a class has only data methods, computes nothing, and holds neither a table nor a number.

    The program sees such a class, and `Ref(3).answer` would give it the expected value. Enumerations name constants.
    """
    if any(_last_name(base).endswith(("Enum", "Flag")) for base in node.bases):
        return all(type(inner) is ast.Assign and type(inner.value) is ast.Constant for inner in node.body)
    for statement in node.body:
        if type(statement) is ast.FunctionDef and statement.name not in _OF_DATA:
            return False
        if type(statement) not in (ast.FunctionDef, ast.AnnAssign, ast.Expr, ast.Pass):
            return False
    # Annotations are left out: `dict[str, int]` is a subscript, and subscripts count as computing.
    annotations = [getattr(inner, "annotation", None) for inner in walk(node)]
    typing_only = {id(inner) for annotation in annotations if annotation is not None for inner in walk(annotation)}
    nodes = [inner for inner in walk(node) if id(inner) not in typing_only]
    return not any(isinstance(inner, _COMPUTES) or _is_table(inner) or _holds_number(inner) for inner in nodes)


def is_shared_kind(base: Value) -> bool:
    """Return whether instances of a class with this base cannot be copied by their attributes."""
    return _last_name(base).endswith(("Exception", "Error", "Warning"))


def _last_name(node: Value) -> str:
    return str(getattr(node, "id", "") or getattr(node, "attr", ""))


def _holds_number(node: Value) -> bool:
    parts = [getattr(node, field, None) for field in node._fields]
    items = [item for part in parts for item in (part if type(part) is list else (part,))]
    return any(
        type(item) is ast.Constant and type(item.value) in (int, float, complex) and item.value not in (0, 1)
        for item in items
    )


def _is_table(node: Value) -> bool:
    kind = type(node)
    if kind is ast.Tuple:
        return any(type(item) is ast.Constant for item in node.elts)
    return bool(node.keys if kind is ast.Dict else kind in (ast.List, ast.Set) and node.elts)


def attribute_owners(nodes: list[Value]) -> Iterator[str]:
    """Yield the names that stand before a dot."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id


def is_pure(nodes: list[Value]) -> bool:
    """Return whether the text shows that a test changes nothing beyond its own namespace.

    A pure test imports only public names of modules that nobody can change, sets no attribute, and uses no name or
    attribute that leads further.
    """
    modules: dict[str, str] = {}
    used: dict[str, int] = {}
    looked_into: dict[str, list[str]] = {}
    for node in nodes:
        kind = type(node)
        if kind is ast.Name:
            used[node.id] = used.get(node.id, 0) + 1
        elif kind is ast.Attribute:
            if type(node.ctx) is not ast.Load or node.attr.startswith(_INNARDS):
                return False
            if type(node.value) is ast.Name:
                looked_into.setdefault(node.value.id, []).append(node.attr)
        elif kind is ast.Import:
            modules.update((alias.asname or alias.name, alias.name) for alias in node.names)
        # `case Point(x=0)` looks attributes up without naming them, and a starred import binds names that the text does
        # not show.
        elif kind is ast.MatchClass or (kind is ast.ImportFrom and not _imports_what_is_public(node)):
            return False
    if any(name in _BARRED or name.startswith("__") for name in used):
        return False
    # A module that is used other than before a dot could be passed on, and changed where the text does not show it.
    for name, module in modules.items():
        attributes = looked_into.get(name, [])
        if len(attributes) != used.get(name, 0) or not _PUBLIC.get(module, frozenset()).issuperset(attributes):
            return False
    return _PUBLIC.keys() >= set(modules.values())


def _imports_what_is_public(node: ast.ImportFrom) -> bool:
    public = _PUBLIC.get(node.module or "", frozenset())
    return node.level == 0 and all(alias.name in public for alias in node.names)
