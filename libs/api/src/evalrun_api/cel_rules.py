"""Evaluates the CRD's own rules where there is no API server.

Rules that compare with the former object (`oldSelf`) speak of updates and are passed over, as they are on a create.
"""

import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator, Set
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol, cast

from evalrun_api.api_model import VALIDATIONS
from evalrun_api.checks import Value, Violation, child_path
from evalrun_api.structural import Schema


class Program(Protocol):
    """A compiled expression."""

    def execute(self, context: dict[str, Value]) -> object:
        """Return the expression's value."""
        ...


@lru_cache(maxsize=1)
def load_cel() -> ModuleType:
    """Return the CEL library's compiled module by itself.

    Importing the package `cel` also imports its interactive shell (typer, prompt_toolkit): 0.7 s against 0.02 s.
    """
    package = importlib.util.find_spec("cel")
    if package is None or package.submodule_search_locations is None:
        raise ImportError("the package common-expression-language (imported as cel) is not installed")
    extension = importlib.machinery.PathFinder.find_spec("cel.cel", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        raise ImportError("the package common-expression-language holds no module cel.cel")
    module = sys.modules.get("cel.cel") or importlib.util.module_from_spec(extension)
    if "cel.cel" not in sys.modules:
        extension.loader.exec_module(module)
    return module


@lru_cache(maxsize=512)
def compile_rule(expression: str) -> Program:
    """Compile a rule.

    Raises:
        ValueError: it is not CEL.
    """
    return cast(Program, load_cel().compile(expression))


def holds(expression: str, self_value: Value, old_value: Value = None) -> bool:
    """Return whether a rule evaluates to `true`.

    Raises:
        RuntimeError, KeyError, TypeError, ValueError, ArithmeticError: the expression cannot be evaluated for these
            values, e.g. since it reads a field that is absent.
    """
    context: dict[str, Any] = {"self": self_value, "sum": sum}  # Kubernetes has it, the library has not
    if old_value is not None:
        context["oldSelf"] = old_value
    return compile_rule(expression).execute(context) is True


def find_broken_rules(
    schema: Schema, value: Value, wrong: Set[str] = frozenset(), path: str = ""
) -> Iterator[Violation]:
    """Return every rule that `value`, or something inside it, breaks.

    Args:
        schema: the structural schema, with its rules.
        value: the object, defaults applied.
        wrong: paths of fields whose values mean nothing (wrong type, absent): rules that read them are skipped.
        path: where `value` stands.
    """
    spoilt = {_last_name(other) for other in wrong if _inside(path, other)}
    unread = wrong | {re.sub(r"\[\d+\]$", "", other) for other in wrong}  # a list's rules read its items
    for rule in schema.get(VALIDATIONS, ()):
        read = set(re.findall(r"\w+", rule["rule"]))
        if "oldSelf" not in read and not spoilt & read and path not in unread:
            yield from _check_rule(rule, value, path)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, item in value.items():
            child = known.get(name, schema.get("additionalProperties"))
            if child is not None:
                yield from find_broken_rules(child, item, wrong, child_path(path, name))
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from find_broken_rules(schema["items"], item, wrong, f"{path}[{index}]")


def _check_rule(rule: dict[str, str], value: Value, path: str) -> Iterator[Violation]:
    blamed = (path + rule.get("fieldPath", "")).removeprefix(".")
    try:
        if not holds(rule["rule"], value):
            yield Violation(blamed, rule["message"])
    except (RuntimeError, LookupError, TypeError, ValueError, ArithmeticError) as error:  # what the library raises
        yield Violation(blamed, f"{rule['message']} (the rule could not be evaluated: {error})")


def _last_name(path: str) -> str:
    """Return the name of the field at the end of a path: rules read fields by it."""
    return path.rpartition(".")[2].partition("[")[0]


def _inside(path: str, other: str) -> bool:
    """Return whether `other` is `path` or lies below it."""
    return other == path or path == "" or other.startswith((f"{path}.", f"{path}["))
