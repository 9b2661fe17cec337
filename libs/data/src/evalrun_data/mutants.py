"""Mutants of a reference solution: the same Python program with one small fault each. Pure.

A mutant that tests accept is either a program that they should reject, or equivalent to the reference: nothing here can
tell which. Those that compile to the reference's own byte code are left out.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_MAX_SHOWN: Final = 60

Change = Callable[[ast.AST], None]
"""Changes one node in place."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one fault."""

    change: str
    """The mutation and its line, e.g. `line 3: n < 2 became n <= 2`."""
    code: str


def mutants(code: str, maximum: int) -> list[Mutant]:
    """Return mutants of a Python program, at most so many, spread evenly over those that there are.

    Raises:
        SyntaxError: it is not Python.
        RecursionError: it is nested too deeply.
    """
    tree = ast.parse(code)
    known = {_byte_code(ast.unparse(tree))}
    found = []
    for place, change in _changes(tree):
        changed = copy.deepcopy(tree)
        node = list(ast.walk(changed))[place]
        before = ast.unparse(node)
        change(node)
        text = ast.unparse(ast.fix_missing_locations(changed))
        compiled = _byte_code(text)
        if compiled not in known:
            known.add(compiled)
            said = f"line {getattr(node, 'lineno', 0)}: {_short(before)} became {_short(ast.unparse(node))}"
            found.append(Mutant(said, text))
    if len(found) <= maximum:
        return found
    return [found[number * len(found) // maximum] for number in range(maximum)]


def _changes(tree: ast.Module) -> Iterator[tuple[int, Change]]:
    """Yield each change with the place of its node in `ast.walk`'s order."""
    quoted = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # doc strings compute nothing
    for place, node in enumerate(ast.walk(tree)):
        match node:
            case ast.Compare(ops=ops):
                for number, operator in enumerate(ops):
                    if type(operator) in _COMPARED:
                        yield place, _compares_otherwise(number, _COMPARED[type(operator)])
            case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _COMPUTED:
                yield place, _operates_otherwise(_COMPUTED[type(operator)])
            case ast.BoolOp(op=operator):
                yield place, _joins_otherwise(ast.Or if isinstance(operator, ast.And) else ast.And)
            case ast.Constant(value=value) if id(node) not in quoted:
                for other in _other_constants(value):
                    yield place, _holds(other)
            case ast.Return(value=ast.expr()):
                yield place, _returns_nothing
            case ast.If() | ast.IfExp():  # a `while` turned round ends at once or never, which any test tells
                yield place, _turned_round


def _other_constants(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1]
    if isinstance(value, str):
        return [value + "x" if value else "x"]
    return []


def _compares_otherwise(number: int, operator: type[ast.cmpop]) -> Change:
    def change(node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            node.ops[number] = operator()

    return change


def _operates_otherwise(operator: type[ast.operator]) -> Change:
    def change(node: ast.AST) -> None:
        if isinstance(node, ast.BinOp | ast.AugAssign):
            node.op = operator()

    return change


def _joins_otherwise(operator: type[ast.boolop]) -> Change:
    def change(node: ast.AST) -> None:
        if isinstance(node, ast.BoolOp):
            node.op = operator()

    return change


def _holds(value: object) -> Change:
    def change(node: ast.AST) -> None:
        if isinstance(node, ast.Constant):
            node.value = value  # type: ignore[assignment]  # numbers and texts only: `_other_constants`

    return change


def _returns_nothing(node: ast.AST) -> None:
    if isinstance(node, ast.Return):
        node.value = None


def _turned_round(node: ast.AST) -> None:
    if isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)


def _byte_code(text: str) -> CodeType:
    """Return what a program compiles to, without the places of its lines. Code objects compare by content."""
    return _without_places(compile(text, "<program>", "exec", dont_inherit=True))


def _without_places(code: CodeType) -> CodeType:
    constants = tuple(_without_places(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_firstlineno=1, co_linetable=b"")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}..."
