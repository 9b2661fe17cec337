"""Docstrings that open with "Return" are true: something is returned, and "Return whether" stands for a bool."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIRECTORIES = ["libs/*/src", "services/*/src", "operator/src", "tools"]
NOTHING = {"None", "NoReturn", "Never"}


def false_openings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function whose docstring claims a return that the annotation denies."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
            continue
        words = (ast.get_docstring(node) or "").split(maxsplit=2)
        returned = ast.unparse(node.returns)
        returns = bool(words) and words[0] in {"Return", "Returns"}
        if returns and (
            returned in NOTHING
            or (words[1:2] == ["whether"] and not returned.startswith(("bool", "TypeGuard", "TypeIs")))
        ):
            yield node.lineno, node.name


@pytest.mark.parametrize(
    ("signature", "docstring", "is_false"),
    [
        ("def f() -> None", "Return the slot.", True),
        ("async def f() -> None", "Return the slot.", True),
        ("def f() -> Never", "Returns once it ends.", True),
        ("def f() -> str | None", "Return whether it failed.", True),
        ("@property\n    def f(self) -> int", "Return whether it failed.", True),
        ("def f() -> bool", "Return whether it failed.", False),
        ("def f() -> str | None", "Return the error, or None.", False),
        ("def f() -> None", "Store the slot.", False),
    ],
)
def test_false_openings_reports_a_docstring_that_contradicts_the_annotation(
    signature: str, docstring: str, is_false: bool
) -> None:
    source = f'class Example:\n    {signature}:\n        """{docstring}"""\n'
    assert bool(list(false_openings(source))) is is_false


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_docstring_opening_with_return_matches_the_annotation(directory: str) -> None:
    files = [path for place in ROOT.glob(directory) for path in sorted(place.rglob("*.py"))]
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in files
        for line, name in false_openings(path.read_text(encoding="utf-8"))
    ]
    assert found == [], 'write the verb of what happens; "Return whether" only on a function that returns bool'
