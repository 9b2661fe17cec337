"""Docstrings open as the style asks: a function's with a verb, a class's or a constant's with what it is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["libs/*/src", "services/*/src", "operator/src", "tools"]
QUESTIONS = {"How", "What", "Whatever", "When", "Where", "Which", "Who", "Whom", "Why"}
VAGUE = {"Give", "Gives", "Has", "Have", "Let", "Lets", "Make", "Makes", "Say", "Says", "Tell", "Tells"}
ARTICLES = {"A", "An", "Each", "Every", "It", "Its", "No", "Nothing", "One", "The", "There"}
NO_VERB = ARTICLES | {"As", "In", "Is", "Of", "Whether"}
WORD = re.compile(r"\W*([A-Za-z']+)")
COMMANDS = {"command", "group", "property", "cached_property", "field_validator", "model_validator"}
"""Decorators of functions whose docstring is a help text, or a noun."""


def openers(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, first word, and whether it must be a verb, of each docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                decorators = {ast.unparse(one).split("(")[0].split(".")[-1] for one in node.decorator_list}
                described = node.body[0] if not decorators & COMMANDS else None
            case ast.Module() | ast.ClassDef():
                described = None
            case _:
                continue
        for statement in node.body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    if opener := WORD.match(text):
                        yield statement.lineno, opener[1], statement is described


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_what_something_is_or_does(folder: str) -> None:
    files = [path for place in ROOT.glob(folder) for path in sorted(place.rglob("*.py"))]
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in files
        for line, word, verb in openers(path)
        if word in QUESTIONS | VAGUE or (verb and word in NO_VERB)
    ]
    assert found == [], "write Return, Raise, Create, Parse, ... for a function; for the rest a noun, not a question"
