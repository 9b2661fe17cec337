"""Mutants of a reference solution: the same Python program with one small fault each. Pure.

A mutant that tests accept is either a program that they should reject, or equivalent to the reference: nothing here can
tell which. Those that compile to the reference's own byte code are left out.

The faults are those of mutation testing (comparison, arithmetic, logic, constant, deletion of statements and operands)
and those that programs of models have: elements of a sequence left out, repeated ones dropped, another order, a bound
off by one, a call left out.
"""

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Final, TypeVar

_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_RELATIONS: Final = (*_ORDERED, ast.Eq, ast.NotEq)
_COMPARED: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    **{relation: tuple(other for other in _RELATIONS if other is not relation) for relation in _RELATIONS},
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_DELETED: Final = (
    ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Return, ast.Break, ast.Continue, ast.Raise,
)  # fmt: skip
_MAX_SHOWN: Final = 70

NodeT = TypeVar("NodeT", bound=ast.AST)


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
    for place, field, index, other in _changes(tree):
        changed = copy.deepcopy(tree)
        parent = list(ast.walk(changed))[place]
        node = _child(parent, field, index)
        _put(parent, field, index, other)
        text = ast.unparse(ast.fix_missing_locations(changed))
        compiled = _byte_code(text)
        if compiled is not None and compiled not in known:
            known.add(compiled)
            line = getattr(node, "lineno", getattr(parent, "lineno", 0))
            found.append(Mutant(f"line {line}: {_shown(node)} became {_shown(other)}", text))
    if len(found) <= maximum:
        return found
    return [found[number * len(found) // maximum] for number in range(maximum)]


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, int | None, ast.AST]]:
    """Yield each change: the parent's place in `ast.walk`'s order, its field and index there, and the new child."""
    for place, parent in enumerate(ast.walk(tree)):
        for field, value in ast.iter_fields(parent):
            children: Iterable[tuple[int | None, object]] = (
                enumerate(value) if isinstance(value, list) else [(None, value)]
            )
            for index, child in children:
                if isinstance(child, ast.stmt):
                    others: Sequence[ast.AST] = _statements(child)
                elif isinstance(child, ast.expr) and not _only_text(parent, child):
                    others = [*_expressions(child), *_in_place(parent, field, child)]
                elif isinstance(child, ast.comprehension):
                    others = _comprehensions(child)
                else:
                    others = ()
                for other in others:
                    yield place, field, index, other


def _statements(node: ast.stmt) -> list[ast.AST]:
    """Return what may stand in a statement's place."""
    others: list[ast.AST] = []
    match node:
        case ast.Expr(value=ast.Constant()):
            return []  # a doc string computes nothing
        case ast.Return(value=ast.expr()):
            others.append(ast.Return())
        case ast.AugAssign(op=operator) if type(operator) in _COMPUTED:
            others.append(_with(node, op=_COMPUTED[type(operator)]()))
        case ast.If(test=test):  # a `while` turned round ends at once or never, which any test tells
            others.append(_with(node, test=ast.UnaryOp(ast.Not(), test)))
            if node.orelse:
                others.append(_with(node, orelse=[]))
        case ast.For(iter=sequence):
            others += [_with(node, iter=each) for each in _sequences(sequence)]
        case ast.Break():
            others.append(ast.Continue())
        case ast.Continue():
            others.append(ast.Break())
    return [*others, ast.Pass()] if isinstance(node, _DELETED) else others


def _expressions(node: ast.expr) -> list[ast.AST]:
    """Return what may stand in an expression's place, wherever that is."""
    match node:
        case ast.Compare(ops=ops):
            return [
                _with(node, ops=[*ops[:number], other(), *ops[number + 1 :]])
                for number, operator in enumerate(ops)
                for other in _COMPARED.get(type(operator), ())
            ]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED:
            return [_with(node, op=_COMPUTED[type(operator)]()), left, right]
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            left_out = [values[:number] + values[number + 1 :] for number in range(len(values))]
            return [
                _with(node, op=other),
                *(_with(node, values=kept) if len(kept) > 1 else kept[0] for kept in left_out),
            ]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Constant(value=value):
            return [ast.Constant(other) for other in _other_constants(value)]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return [_with(node, test=ast.UnaryOp(ast.Not(), test)), body, orelse]
        case ast.Call():
            return _calls(node)
        case ast.Subscript(slice=ast.Slice() as bounds):
            return [
                _with(node, slice=_with(bounds, **{name: other}))
                for name in ("lower", "upper")
                if (bound := getattr(bounds, name)) is not None
                for other in (*_off_by_one(bound), None)
            ]
        case ast.Subscript(slice=index) if not isinstance(index, ast.Constant | ast.Tuple):
            return [_with(node, slice=other) for other in _off_by_one(index)]
    return []


def _calls(node: ast.Call) -> list[ast.AST]:
    """Return what may stand in a call's place: another call, or what it was called with."""
    others: list[ast.AST] = []
    if isinstance(node.func, ast.Name):
        if node.func.id in _CALLED:
            others.append(_with(node, func=ast.Name(_CALLED[node.func.id], ast.Load())))
        if node.func.id == "sorted" and not node.keywords:
            others.append(_with(node, keywords=[ast.keyword("reverse", ast.Constant(value=True))]))
        if node.func.id == "range":
            others += [
                _with(node, args=[*node.args[:number], other, *node.args[number + 1 :]])
                for number, bound in enumerate(node.args[:2])
                for other in _off_by_one(bound)
            ]
    if len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        others.append(node.args[0])
    if isinstance(node.func, ast.Attribute):
        others.append(node.func.value)
    others += [_with(node, keywords=[each for each in node.keywords if each is not left]) for left in node.keywords]
    return others


def _in_place(parent: ast.AST, field: str, node: ast.expr) -> list[ast.AST]:
    """Return what may stand in an expression's place because of where that is."""
    if field == "test" and isinstance(parent, ast.If | ast.IfExp):
        return [ast.Constant(value=True), ast.Constant(value=False)]
    if isinstance(parent, ast.Compare) and any(isinstance(each, _ORDERED) for each in parent.ops):
        return [] if isinstance(node, ast.Constant) else [*_off_by_one(node)]
    if isinstance(parent, ast.Return) and isinstance(node, ast.Compare | ast.BoolOp):
        return [ast.Constant(value=True), ast.Constant(value=False)]
    return []


def _comprehensions(node: ast.comprehension) -> list[ast.AST]:
    without = [_with(node, ifs=[each for each in node.ifs if each is not left]) for left in node.ifs]
    return [*without, *(_with(node, iter=each) for each in _sequences(node.iter))]


def _sequences(sequence: ast.expr) -> list[ast.expr]:
    """Return a sequence without its first, its last or its repeated elements, and backwards."""
    listed = ast.Call(ast.Name("list", ast.Load()), [sequence], [])
    last = ast.UnaryOp(ast.USub(), ast.Constant(1))
    slices = (ast.Slice(lower=ast.Constant(1)), ast.Slice(upper=last), ast.Slice(step=last))
    return [
        *(ast.Subscript(listed, each, ast.Load()) for each in slices),
        ast.Call(ast.Attribute(ast.Name("dict", ast.Load()), "fromkeys", ast.Load()), [sequence], []),
    ]


def _off_by_one(node: ast.expr) -> list[ast.expr]:
    return [ast.BinOp(node, operator, ast.Constant(1)) for operator in (ast.Add(), ast.Sub())]


def _other_constants(value: object) -> list[bool | int | float | str]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1]
    if isinstance(value, str):
        return [value + "x", ""] if value else ["x"]
    return []


def _with(node: NodeT, **fields: object) -> NodeT:
    """Return a copy of a node with other fields."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _only_text(parent: ast.AST, node: ast.expr) -> bool:
    """Return whether an expression is a doc string, or part of a formatted text, where no other may stand."""
    return isinstance(parent, ast.JoinedStr) or (isinstance(parent, ast.Expr) and isinstance(node, ast.Constant))


def _child(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    child: ast.AST = value if index is None else value[index]
    return child


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _byte_code(text: str) -> CodeType | None:
    """Return what a program compiles to, without the places of its lines; None: the change made no program.

    Code objects compare by content.
    """
    try:
        return _without_places(compile(text, "<program>", "exec", dont_inherit=True))
    except SyntaxError:
        return None


def _without_places(code: CodeType) -> CodeType:
    constants = tuple(_without_places(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_firstlineno=1, co_linetable=b"")


def _shown(node: ast.AST) -> str:
    """Return the beginning of a node's text: of a statement with a body, its head."""
    text = ast.unparse(node)
    line = " ".join((text.splitlines()[0] if isinstance(node, ast.If | ast.For | ast.While) else text).split())
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}..."
