"""MBPP's entry points. None is published: it is the name that the reference code defines and the asserts call.

It may shadow a builtin (126 defines `sum`) and need not be the outermost call (912 puts it inside another).
"""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator, Sequence

# Most tasks are decided by these two patterns; parsing all 974 codes would take 0.2 s.
_DEFINED = re.compile(r"^(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*=(?!=)", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])(\w+)[ \t]*\(")


def entry_point(code: str, asserts: Sequence[str]) -> str | None:
    """Return the name that `code` defines at its top level and that the asserts call, or None.

    Where several qualify, the one that most asserts call decides, then the last one defined: helpers come first.
    """
    defined: list[str] = [first or second for first, second in _DEFINED.findall(code)]
    calls: list[set[str]] = [set(_CALLED.findall(text)) for text in asserts]
    candidates = sorted(set(defined).intersection(*calls))
    if len(candidates) == 1:
        return candidates[0]
    return _find_by_parsing(code, asserts)


_BUILTINS = frozenset(dir(builtins))


def find_asserted_name(asserts: Sequence[str]) -> str | None:
    """Return the function, not a builtin, that every assert calls; None unless there is exactly one."""
    return find_called_name(asserts, _BUILTINS)


def find_called_name(asserts: Sequence[str], ignored: frozenset[str]) -> str | None:
    """Return the name outside `ignored` that every assert calls; None unless there is exactly one.

    For sources without reference code.
    """
    try:
        calls = [set(_find_called_names(ast.parse(text))) - ignored for text in asserts]
    except (SyntaxError, ValueError):
        return None
    shared = set.intersection(*calls) if calls else set()
    return shared.pop() if len(shared) == 1 else None


def explain_broken_assert(asserts: Sequence[str]) -> str:
    """Return which assert does not compile and why, for people; empty if all do. Tests are counted from 0."""
    found = ((number, compile_error(text)) for number, text in enumerate(asserts))
    return next((f"test {number} does not compile: {said}" for number, said in found if said), "")


def why_unnamed(field: str, asserts: Sequence[str], otherwise: str) -> str:
    """Return why the asserts do not determine an entry point: an assert in `field` does not compile, or else the reason
    `otherwise`."""
    broken = explain_broken_assert(asserts)
    return f"field '{field}': {broken}" if broken else otherwise


def compile_error(code: str) -> str:
    """Return why Python cannot parse a text, for people; empty if it can."""
    try:
        ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except ValueError as error:
        return str(error)
    return ""


def _find_by_parsing(code: str, asserts: Sequence[str]) -> str | None:
    try:
        defined = list(_find_defined_names(ast.parse(code)))
        counts = Counter(name for text in asserts for name in set(_find_called_names(ast.parse(text))))
    except (SyntaxError, ValueError):
        return None
    candidates = [name for name in defined if counts[name]]
    return max(reversed(candidates), key=lambda name: counts[name], default=None)


def _find_defined_names(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _find_called_names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
