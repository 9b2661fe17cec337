"""Runs one test of a problem in the program's own process, and reports how it ended. Shipped as text.

Standard library only. The request is JSON on stdin: `{"secret", "entry", "form", "setup", "before", "test"}`; `form`
is `check` (HumanEval's), `asserts` or `cases` (classes of unittest; functions and classes as pytest has them, with
`parametrize`, without fixtures). The answer is one line on a private copy of stdout: the secret and the outcome as
JSON. A process that ends without that line has failed, whatever its exit code. The program can look for the secret in
this process, so such verdicts are forgeable.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from functools import partial
from importlib.util import find_spec
from types import FunctionType, ModuleType

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

PROGRAM, TEST = "<program>", "<test>"
TEXT_LIMIT = 500


class _UnmetError(Exception):
    """A test case of unittest that did not pass; the message is the end of its traceback."""


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _run(text: str, file: str, space: dict[str, object]) -> None:
    exec(compile(text, file, "exec", dont_inherit=True), space)  # noqa: S102 - what it is for


def _run_tolerantly(text: str, space: dict[str, object]) -> None:
    """Execute earlier tests. They are judged by themselves, so their failed asserts stop nothing."""
    for statement in ast.parse(text).body:
        try:
            exec(compile(ast.Module([statement], []), "<before>", "exec", dont_inherit=True), space)  # noqa: S102
        except AssertionError:
            continue


def _run_cases(space: dict[str, object], earlier: set[str]) -> None:
    """Run the test cases that a unittest or pytest file defines."""
    # Importing unittest takes longer than most tests.
    import unittest

    made = {name: thing for name, thing in space.items() if name not in earlier}
    kinds = [kind for kind in made.values() if isinstance(kind, type) and issubclass(kind, unittest.TestCase)]
    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, dict.fromkeys(kinds)))
    functions: list[Callable[..., object]] = [
        thing for name, thing in made.items() if name.startswith("test") and isinstance(thing, FunctionType)
    ]
    plain = [kind for name, kind in made.items() if name.startswith("Test") and isinstance(kind, type)]
    for kind in (kind for kind in plain if not issubclass(kind, unittest.TestCase)):
        for name in [name for name in dir(kind) if name.startswith("test")]:
            functions += [partial(_run_method, kind, name)]
            functions[-1].pytestmark = getattr(getattr(kind, name), "pytestmark", [])  # type: ignore[attr-defined]
    result = unittest.TestResult()
    suite.run(result)
    for case, trace in (*result.failures, *result.errors):
        raise _UnmetError(f"{case}: {trace.strip().rpartition(chr(10))[2]}")
    if result.unexpectedSuccesses or result.skipped or result.testsRun + len(functions) == 0:
        raise _UnmetError("not every test case ran")
    for function in functions:
        for arguments in _find_arguments(function):
            function(**arguments)


def _run_method(kind: type, name: str, **arguments: object) -> None:
    """Run a method of a pytest class on an object of its own, as pytest does."""
    made = kind()
    getattr(made, "setup_method", lambda _: None)(getattr(made, name))
    try:
        getattr(made, name)(**arguments)
    finally:
        getattr(made, "teardown_method", lambda _: None)(getattr(made, name))


def _find_arguments(function: Callable[..., object]) -> list[dict[str, object]]:
    """Return the arguments of each call of a function by its `parametrize` marks: a single call without any mark."""
    calls: list[dict[str, object]] = [{}]
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else mark.args[0]
            rows = [_make_row(given, len(names)) for given in mark.args[1]]
            calls = [{**call, **dict(zip(names, row, strict=True))} for call in calls for row in rows]
    return calls


def _make_row(given: object, count: int) -> Iterable[object]:
    """Return a row of `parametrize`: `pytest.param(...)`, a tuple, or the value of a single name."""
    if hasattr(given, "marks"):
        values: Iterable[object] = given.values  # type: ignore[attr-defined]  # pytest's ParameterSet
        return values
    return given if count > 1 else (given,)  # type: ignore[return-value]  # a tuple, by pytest's rule


def _find_missing_module(request: dict[str, str]) -> str:
    """Return a module that the test imports first and that is missing here: no program can pass it."""
    for node in [*ast.parse(request["setup"]).body, *ast.parse(request["test"]).body]:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            root = name.partition(".")[0]
            if root != "program" and find_spec(root) is None:
                return root
    return ""


def _judge_program(code: str, request: dict[str, str]) -> dict[str, str]:
    missing = _find_missing_module(request)
    if missing:
        reason = f"the test itself fails: ModuleNotFoundError: No module named {missing!r}"
        return {"status": "api_error", "reason": reason, "missing_module": missing}
    module = ModuleType("program")
    sys.modules["program"] = module
    space = vars(module)
    try:
        compiled = compile(code, PROGRAM, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return {"status": "compile_error", "reason": _format_exception_line(error)}
    try:
        exec(compiled, space)  # noqa: S102 - what it is for
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        return _report_failure(error, "while it was loaded", loading=True)
    try:
        _run_test(space, request)
    except BaseException as error:  # noqa: BLE001 - a test may raise anything
        return _report_failure(error, "", loading=False)
    return {"status": "success", "reason": ""}


def _run_test(space: dict[str, object], request: dict[str, str]) -> None:
    entry = request["entry"]
    under_test = space.get(entry)
    _run(request["setup"], "<setup>", space)
    _run_tolerantly(request["before"], space)
    earlier = {*space}
    _run(request["test"], TEST, space)
    if request["form"] == "check":
        check: Callable[[object], object] = space["check"]  # type: ignore[assignment]  # the test's
        check(under_test if entry == "check" else space[entry])
    elif request["form"] == "cases":
        _run_cases(space, earlier)


def _report_failure(error: BaseException, when: str, *, loading: bool) -> dict[str, str]:
    missing = error.name if isinstance(error, ModuleNotFoundError) else ""
    said = {"reason": f"{_format_exception_line(error)} {when}".strip(), "missing_module": missing or ""}
    if isinstance(error, MemoryError):
        return {"status": "memory_limit", **said}
    if isinstance(error, SystemExit) or loading or _is_the_programs(error.__traceback__):
        return {"status": "runtime_error", **said, "reason": f"the program raised {said['reason']}"}
    if type(error) is AssertionError or isinstance(error, _UnmetError):
        return {
            "status": "wrong_answer",
            **said,
            "reason": f"the assertion failed: {_read_text_safely(error)}".strip(": "),
        }
    return {"status": "wrong_answer", **said, "reason": f"the assertion raised {said['reason']}"}


def _is_the_programs(trace: TracebackType | None) -> bool:
    """Return whether an exception came from the program: its frame is below the test's."""
    file = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        file = name if name in (PROGRAM, TEST) else file
        trace = trace.tb_next
    return file == PROGRAM


def _read_text_safely(error: BaseException) -> str:
    try:
        return str(error)[:TEXT_LIMIT].replace("\n", " ")
    except BaseException:  # noqa: BLE001 - the program's own __str__
        return ""


def _format_exception_line(error: BaseException) -> str:
    text = _read_text_safely(error)
    return type(error).__name__ + (f": {text}" if text else "")


def main(code: str) -> None:
    """Run the test on stdin with the program `code`, and end the process."""
    request = json.loads(_read_all(0))
    secret = request.pop("secret")
    # These names are bound first, because a program may replace them.
    write, leave, dumps = os.write, os._exit, json.dumps
    answers = os.dup(1)
    os.dup2(2, 1)
    outcome = dumps(_judge_program(code, request))
    write(answers, f"\n{secret} {outcome}\n".encode())
    leave(0)
