"""Mutants of a reference solution: the same Python program with a single small fault. Pure.

A mutant that tests accept is either a program that they should reject, or equivalent to the reference: nothing here can
tell which. Those that compile to the reference's own byte code are left out.

The faults are those of mutation testing (comparison, arithmetic, logic, constant, deletion of statements and operands,
another variable, another sign) and those that programs of models have: elements of a sequence left out, repeated ones
dropped, another order, a bound off by one, a call left out or taken for a similar one, a regular expression that
matches more or less. Others are right except for a class of inputs, for which they return nothing: a negative number, a
list that is not in order, a repeated element. If such a one passes, no test has an input of that class.
"""

import ast
import copy
import re
import warnings
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
_COMPUTED: Final[dict[type[ast.operator], tuple[type[ast.operator], ...]]] = {
    ast.Add: (ast.Sub, ast.Mult), ast.Sub: (ast.Add, ast.Mod), ast.Mult: (ast.Add, ast.Pow),
    ast.Div: (ast.FloorDiv, ast.Mult), ast.FloorDiv: (ast.Div, ast.Mod), ast.Mod: (ast.FloorDiv, ast.Sub),
    ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr, ast.BitXor), ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.BitXor: (ast.BitAnd, ast.BitOr), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
}  # fmt: skip
_FUNCTIONS: Final = {
    "min": ("max",), "max": ("min",), "any": ("all",), "all": ("any",), "int": ("round",), "round": ("int",),
    "list": ("set",), "set": ("list",), "len": ("sum",), "sum": ("len", "max"),
}  # fmt: skip
_METHODS: Final = {
    "lower": ("upper",), "upper": ("lower",), "isupper": ("islower",), "islower": ("isupper",),
    "isalpha": ("isalnum",), "isdigit": ("isalnum",), "isalnum": ("isalpha",),
    "startswith": ("endswith",), "endswith": ("startswith",), "strip": ("lstrip", "rstrip"), "lstrip": ("rstrip",),
    "rstrip": ("lstrip",), "find": ("rfind",), "rfind": ("find",), "index": ("rindex",), "rindex": ("index",),
    "append": ("extend",), "extend": ("append",), "keys": ("values",), "values": ("keys",),
    "union": ("intersection",), "intersection": ("union", "difference"), "difference": ("intersection",),
    "ceil": ("floor",), "floor": ("ceil",), "search": ("match", "fullmatch"), "match": ("search", "fullmatch"),
    "fullmatch": ("match",), "nlargest": ("nsmallest",), "nsmallest": ("nlargest",),
}  # fmt: skip
_CONSUMERS: Final = frozenset({"len", "sum", "max", "min", "sorted", "set", "any", "all", "Counter", "reversed"})
_DELETED: Final = (
    ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Return, ast.Break, ast.Continue, ast.Raise,
)  # fmt: skip
_PATTERN_PARTS: Final = re.compile(r"\\[AbBdDsSwWZ]|[*+?^$]|\[\^|\{\d+,?\d*\}")
_PATTERN_CHANGES: Final = {
    "*": ("+", "?", ""), "+": ("*", "?", ""), "?": ("*", ""), "[^": ("[",), r"\d": (r"\w",), r"\w": (r"\d", r"\S"),
    r"\s": (r"\S", " "), r"\S": (r"\w",), r"\W": (r"\s",), r"\D": (r"\W",),
}  # fmt: skip
"""Parts of regular expressions that a fault takes for each other; the others may be left out."""
_SIZED, _NUMBER, _ORDER = (
    "hasattr(VALUE, '__len__')",
    "isinstance(VALUE, (int, float))",
    "isinstance(VALUE, (list, tuple, str))",
)
_LISTED, _TEXT = "isinstance(VALUE, (list, tuple))", "isinstance(VALUE, str)"
_CLASSES: Final = {
    "negative": f"{_NUMBER} and VALUE < 0",
    "odd": f"{_NUMBER} and VALUE % 2 == 1",
    "even": f"{_NUMBER} and VALUE % 2 == 0",
    "a fraction": f"{_NUMBER} and VALUE % 1 != 0",
    "with repeated elements": f"{_ORDER} and any(_each in VALUE[:_n] for _n, _each in enumerate(VALUE))",
    "in order": f"{_ORDER} and all(a <= b for a, b in zip(VALUE, VALUE[1:]))",
    "not in order": f"{_ORDER} and any(a > b for a, b in zip(VALUE, VALUE[1:]))",
    "with a negative element": f"{_LISTED} and any(isinstance(_each, (int, float)) and _each < 0 for _each in VALUE)",
    "with a zero": f"{_LISTED} and 0 in VALUE",
    "with a capital letter": f"{_TEXT} and VALUE != VALUE.lower()",
    "with a space": f"{_TEXT} and ' ' in VALUE",
    "with a digit": f"{_TEXT} and any(_each.isdigit() for _each in VALUE)",
    "with punctuation": f"{_TEXT} and any(not _each.isalnum() and _each != ' ' for _each in VALUE)",
}
"""Classes of an argument's values that tests should have one of each, by what is said of them.

Nothing, one element, 0 and 1 are not among them: many tasks exclude them, and tests are right not to have them then."""
_MAX_SHOWN: Final = 70

NodeT = TypeVar("NodeT", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with a fault."""

    change: str
    """The mutation and its line, e.g. `line 3: n < 2 became n <= 2`."""
    code: str


def mutants(code: str, maximum: int) -> list[Mutant]:
    """Return at most `maximum` mutants of a Python program, spread evenly over all mutants that can be made.

    Mutants that are wrong for a class of inputs come first: at most half, unless there are too few other faults.

    Raises:
        SyntaxError: it is not Python.
        RecursionError: it is nested too deeply.
    """
    tree = ast.parse(code)
    known = {_byte_code(ast.unparse(tree))}
    classes = [*_new(_make_class_mutants(tree), known)]
    faults = [*_new(_make_fault_mutants(tree), known)]
    few = _spread(classes, max(maximum // 2, maximum - len(faults)))
    return [*few, *_spread(faults, maximum - len(few))]


def _new(found: Iterable[Mutant], known: set[CodeType | None]) -> Iterator[Mutant]:
    """Yield the mutants that compile to bytecode not in `known`, and add the bytecode to `known`."""
    for mutant in found:
        compiled = _byte_code(mutant.code)
        if compiled is not None and compiled not in known:
            known.add(compiled)
            yield mutant


def _spread(found: list[Mutant], maximum: int) -> list[Mutant]:
    return found if len(found) <= maximum else [found[number * len(found) // maximum] for number in range(maximum)]


def _make_class_mutants(tree: ast.Module) -> Iterator[Mutant]:
    """Yield mutants whose functions return nothing for a class of an argument's values."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        place = 1 if ast.get_docstring(function) is not None else 0
        for argument in (*function.args.posonlyargs, *function.args.args):
            for name, holds in _CLASSES.items():
                (check,) = ast.parse(f"if {holds.replace('VALUE', argument.arg)}: return None").body
                function.body.insert(place, check)
                text = ast.unparse(tree)
                del function.body[place]
                yield Mutant(f"line {function.lineno}: {function.name} returns nothing: {argument.arg} {name}", text)


def _make_fault_mutants(tree: ast.Module) -> Iterator[Mutant]:
    for parent, field, index, other in _changes(tree):
        node = _child(parent, field, index)
        _put(parent, field, index, other)
        text = ast.unparse(tree)
        _put(parent, field, index, node)
        line = getattr(node, "lineno", getattr(parent, "lineno", 0))
        yield Mutant(f"line {line}: {_shown(node)} became {_shown(other)}", text)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield each change: the parent, its field and index there, and the new child."""
    variables = _variables(tree)
    for parent in list(ast.walk(tree)):
        for field, value in ast.iter_fields(parent):
            children: Iterable[tuple[int | None, object]] = (
                enumerate(value) if isinstance(value, list) else [(None, value)]
            )
            for index, child in children:
                if isinstance(child, ast.stmt):
                    others: Sequence[ast.AST] = _statements(child)
                elif isinstance(child, ast.expr) and not _is_only_text(parent, child):
                    others = [*_expressions(child), *_replace_by_place(parent, field, child), *_operands(parent, child)]
                    if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                        others += [ast.Name(other, ast.Load()) for other in variables.get(child, ())]
                elif isinstance(child, ast.comprehension):
                    others = _comprehensions(child)
                else:
                    others = ()
                for other in others:
                    yield parent, field, index, other


def _statements(node: ast.stmt) -> list[ast.AST]:
    """Return replacements of a statement."""
    others: list[ast.AST] = []
    match node:
        case ast.Expr(value=ast.Constant()):
            # A doc string computes nothing.
            return []
        case ast.Return(value=ast.expr()):
            others.append(ast.Return())
        case ast.AugAssign(op=operator):
            others += [_copy_node(node, op=other()) for other in _COMPUTED.get(type(operator), ())]
        # A reversed `while` ends at once or never, which any test notices.
        case ast.If(test=test):
            others.append(_copy_node(node, test=ast.UnaryOp(ast.Not(), test)))
            if node.orelse:
                others.append(_copy_node(node, orelse=[]))
        case ast.For(iter=sequence):
            others += [_copy_node(node, iter=each) for each in _sequences(sequence)]
        case ast.Break():
            others.append(ast.Continue())
        case ast.Continue():
            others.append(ast.Break())
    return [*others, ast.Pass()] if isinstance(node, _DELETED) else others


def _expressions(node: ast.expr) -> list[ast.AST]:
    """Return replacements of an expression that are valid anywhere."""
    match node:
        case ast.Compare(ops=ops):
            return [
                _copy_node(node, ops=[*ops[:number], other(), *ops[number + 1 :]])
                for number, operator in enumerate(ops)
                for other in _COMPARED.get(type(operator), ())
            ]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED:
            return [*(_copy_node(node, op=other()) for other in _COMPUTED[type(operator)]), left, right]
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            left_out = [values[:number] + values[number + 1 :] for number in range(len(values))]
            return [
                _copy_node(node, op=other),
                *(_copy_node(node, values=kept) if len(kept) > 1 else kept[0] for kept in left_out),
            ]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Constant(value=value):
            return [ast.Constant(other) for other in _other_constants(value)]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return [_copy_node(node, test=ast.UnaryOp(ast.Not(), test)), body, orelse]
        case ast.Call():
            return _calls(node)
        case ast.Subscript(slice=ast.Slice() as bounds):
            return [
                _copy_node(node, slice=_copy_node(bounds, **{name: other}))
                for name in ("lower", "upper")
                if (bound := getattr(bounds, name)) is not None
                for other in (*_off_by_one(bound), None)
            ]
        case ast.Subscript(slice=index) if not isinstance(index, ast.Constant | ast.Tuple):
            return [_copy_node(node, slice=other) for other in _off_by_one(index)]
    return []


def _calls(node: ast.Call) -> list[ast.AST]:
    """Return replacements of a call: another call, or an argument."""
    others: list[ast.AST] = []
    if isinstance(node.func, ast.Name):
        similar = _FUNCTIONS.get(node.func.id, ())
        others += [_copy_node(node, func=ast.Name(other, ast.Load())) for other in similar]
        if node.func.id in _CONSUMERS and len(node.args) == 1:
            others += [_copy_node(node, args=[each]) for each in _sequences(node.args[0])]
        if node.func.id == "sorted" and not node.keywords:
            others.append(_copy_node(node, keywords=[ast.keyword("reverse", ast.Constant(value=True))]))
        if node.func.id == "range":
            others += [
                _copy_node(node, args=[*node.args[:number], other, *node.args[number + 1 :]])
                for number, bound in enumerate(node.args[:2])
                for other in _off_by_one(bound)
            ]
    if len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        others.append(node.args[0])
    if isinstance(node.func, ast.Attribute):
        others += [
            _copy_node(node, func=_copy_node(node.func, attr=other)) for other in _METHODS.get(node.func.attr, ())
        ]
        others.append(node.func.value)
    others += [
        _copy_node(node, keywords=[each for each in node.keywords if each is not left]) for left in node.keywords
    ]
    return others


def _replace_by_place(parent: ast.AST, field: str, node: ast.expr) -> list[ast.AST]:
    """Return replacements of an expression that depend on its parent node and its field there."""
    if field == "test" and isinstance(parent, ast.If | ast.IfExp):
        return [ast.Constant(value=True), ast.Constant(value=False)]
    if isinstance(parent, ast.Compare) and any(isinstance(each, _ORDERED) for each in parent.ops):
        return [] if isinstance(node, ast.Constant) else [*_off_by_one(node)]
    if isinstance(parent, ast.Return) and isinstance(node, ast.Compare | ast.BoolOp):
        return [ast.Constant(value=True), ast.Constant(value=False)]
    return []


def _variables(tree: ast.Module) -> dict[ast.Name, list[str]]:
    others: dict[ast.Name, list[str]] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            within = [node for node in ast.walk(function) if isinstance(node, ast.Name | ast.arg)]
            names = dict.fromkeys(
                node.arg if isinstance(node, ast.arg) else node.id
                for node in within
                if isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store)
            )
            for node in within:
                if isinstance(node, ast.Name) and node.id in names:
                    others[node] = [name for name in names if name != node.id]
    return others


def _operands(parent: ast.AST, node: ast.expr) -> list[ast.AST]:
    """Return replacements of an operand or a result: the opposite sign, no sign, one more or less, fewer elements,
    another order."""
    if isinstance(node, ast.Constant):
        return []
    if isinstance(parent, ast.Return) and not isinstance(node, ast.Compare | ast.BoolOp | ast.Tuple | ast.JoinedStr):
        return [
            ast.UnaryOp(ast.USub(), node), *_off_by_one(node), *_slices(node),
            ast.Call(ast.Name("sorted", ast.Load()), [node], []),
        ]  # fmt: skip
    if isinstance(parent, ast.BinOp | ast.Compare) and isinstance(node, ast.Name | ast.Subscript | ast.Call):
        return [ast.UnaryOp(ast.USub(), node), ast.Call(ast.Name("abs", ast.Load()), [node], [])]
    return []


def _comprehensions(node: ast.comprehension) -> list[ast.AST]:
    without = [_copy_node(node, ifs=[each for each in node.ifs if each is not left]) for left in node.ifs]
    return [*without, *(_copy_node(node, iter=each) for each in _sequences(node.iter))]


def _sequences(sequence: ast.expr) -> list[ast.expr]:
    """Return a sequence without its first, its last or its repeated elements, and backwards."""
    return [
        *_slices(ast.Call(ast.Name("list", ast.Load()), [sequence], [])),
        ast.Call(ast.Attribute(ast.Name("dict", ast.Load()), "fromkeys", ast.Load()), [sequence], []),
    ]


def _slices(sequence: ast.expr) -> list[ast.expr]:
    last = ast.UnaryOp(ast.USub(), ast.Constant(1))
    slices = (ast.Slice(lower=ast.Constant(1)), ast.Slice(upper=last), ast.Slice(step=last))
    return [ast.Subscript(sequence, each, ast.Load()) for each in slices]


def _off_by_one(node: ast.expr) -> list[ast.expr]:
    return [ast.BinOp(node, operator, ast.Constant(1)) for operator in (ast.Add(), ast.Sub())]


def _other_constants(value: object) -> list[bool | int | float | str]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1, -value, value * 2, 0]
    if isinstance(value, str):
        return [value + "x", "", value[1:], value[:-1], value.swapcase(), *_patterns(value)] if value else ["x"]
    return []


def _patterns(text: str) -> list[str]:
    """Return a regular expression with a changed quantifier, anchor or class; empty without such a part."""
    return [
        text[: found.start()] + other + text[found.end() :]
        for found in _PATTERN_PARTS.finditer(text)
        for other in _PATTERN_CHANGES.get(found.group(), ("",))
    ]


def _copy_node(node: NodeT, **fields: object) -> NodeT:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_only_text(parent: ast.AST, node: ast.expr) -> bool:
    """Return whether an expression is a docstring, or part of a formatted string, where only text is valid."""
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
    """Return the compiled program without line numbers, or None if the change is not a valid program.

    Code objects compare by content.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore",
                SyntaxWarning,
                # A mutant may take a slice of a number, which fails as it should.
            )
            return _drop_places(compile(text, "<program>", "exec", dont_inherit=True))
    except SyntaxError:
        return None


def _drop_places(code: CodeType) -> CodeType:
    constants = tuple(_drop_places(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_firstlineno=1, co_linetable=b"")


def _shown(node: ast.AST) -> str:
    """Return the beginning of a node's text: of a statement with a body, its head."""
    text = ast.unparse(node)
    line = " ".join((text.splitlines()[0] if isinstance(node, ast.If | ast.For | ast.While) else text).split())
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}..."
