"""Parses and compiles Python text, and lists the names in it."""

from __future__ import annotations

from _ast import PyCF_ONLY_AST

from evalrun_executor.calls.originals import Value

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from types import CodeType
else:
    import _ast as ast

TEST, BEFORE, PROMPT, SETUP = "<test>", "<before>", "<prompt>", "<setup>"


def parse(source: str) -> ast.Module:
    """Return the tree of a text. Raises SyntaxError."""
    tree: Value = compile(source, TEST, "exec", PyCF_ONLY_AST, dont_inherit=True)
    return tree  # type: ignore[no-any-return]  # what PyCF_ONLY_AST makes of "exec"


def compile_source(source: str, file: str = TEST, *, tolerant: bool = False) -> CodeType:
    """Return the code of a text. If `tolerant`, asserts that fail stop nothing."""
    if not tolerant:
        return compile(source, file, "exec", dont_inherit=True)
    tree = parse(source)
    for node in walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if type(statements) is list:
                setattr(
                    node, field, [_tolerate_assert(item) if type(item) is ast.Assert else item for item in statements]
                )
    return compile(tree, file, "exec", dont_inherit=True)


def _tolerate_assert(node: ast.Assert) -> ast.Try:
    """Put the assert into `try: ... except Exception: pass`."""
    at = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    # `Exception` itself may be rebound by the test, so the name is one that `problem` puts into the namespace.
    kind = ast.Name(id="_evalrun_Exception", ctx=ast.Load(), **at)
    handler = ast.ExceptHandler(type=kind, name=None, body=[ast.Pass(**at)], **at)
    return ast.Try(body=[node], handlers=[handler], orelse=[], finalbody=[], **at)


def walk(tree: Value) -> list[Value]:
    """Return the tree's nodes without constants and without nodes that have no fields (contexts, operators)."""
    found = [tree]
    for node in found:
        for field in node._fields:
            child = getattr(node, field, None)
            # The list grows while it is walked: it is its own queue.
            found += [
                item
                for item in (child if type(child) is list else (child,))
                if isinstance(item, ast.AST) and item._fields and type(item) is not ast.Constant
            ]
    return found


def names_in(nodes: list[Value], bound: set[str]) -> set[str]:
    """Return the names that are loaded, and add the names that are bound in any scope to `bound`."""
    loaded: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
    return loaded


def bound_by(node: Value) -> set[str]:
    """Return the names that a statement binds at its own level."""
    if type(node) in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        return {node.name}
    bound: set[str] = set()
    names_in(walk(node), bound)
    return bound


def _first_line(node: Value) -> int:
    first: int = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    return first


def defines(node: Value, code: CodeType) -> bool:
    """Return whether the function's code was compiled from this node."""
    if type(node) is ast.FunctionDef:
        return node.name == code.co_name and code.co_firstlineno == _first_line(node)
    if type(node) is not ast.Lambda or code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    # Several lambdas may stand on one line: the code's positions tell which of them it is.
    at = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None]
    body = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    inside = [place for place in at if place > (node.lineno, 0)]
    return bool(inside) and all(start <= place < end for place in inside)


def segment(source: str, node: Value) -> str:
    """Return the text of a statement without its decorators, or of an expression."""
    return _cut_lines(source, node, node.lineno)


def get_decorated_text(source: str, node: Value) -> str:
    """Return the text of a statement with its decorators."""
    return _cut_lines(source, node, _first_line(node))


def _cut_lines(source: str, node: Value, first_line: int) -> str:
    lines = source.split("\n")[first_line - 1 : node.end_lineno]
    # Offsets of columns count bytes of UTF-8, not characters.
    encoded = [line.encode() for line in lines]
    if not encoded:
        return ""
    encoded[-1] = encoded[-1][: node.end_col_offset]
    encoded[0] = encoded[0][node.col_offset :]
    return b"\n".join(encoded).decode("utf-8", "replace")
