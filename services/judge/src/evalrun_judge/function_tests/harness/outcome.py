"""Decides the outcome of a replayed test, and explains it to people."""

from __future__ import annotations

from evalrun_executor.calls.originals import Value
from evalrun_judge.function_tests.harness.current import Ended
from evalrun_judge.function_tests.harness.run import Run
from evalrun_judge.function_tests.harness.source import TEST, parse, segment, walk

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast

    from evalrun_judge.function_tests.harness.run import Ending
else:
    import _ast as ast

TEXT_LIMIT = 4096
"""Characters kept of a text for people."""


def decide_ending(run: Run, error: BaseException | None) -> Ending:
    """Return the ending of a replay that ended with this exception, or with None."""
    if error is None:
        return {"status": "success", "reason": ""}
    # A test may raise its own exception from the program's, so the chain is searched. The chain may be a circle,
    # hence the bound.
    chain, seen = error, 0
    while chain is not None and seen < 20:
        if any(chain is raised for raised in run.raised):
            return _report_raised(chain)
        chain, seen = chain.__cause__ or chain.__context__, seen + 1  # type: ignore[assignment]
    # Without any call the program has had no part in the failure.
    if not run.calls:
        return report_broken_test(error)
    if isinstance(error, MemoryError):
        return {"status": "memory_limit", "reason": "comparing what the program returned ran out of memory"}
    if type(error) is AssertionError:
        said = f"the assertion failed: {_text(error)}" if error.args else "the assertion failed"
        return {"status": "wrong_answer", "reason": said}
    return {"status": "wrong_answer", "reason": f"the assertion raised {format_exception_line(error)}"}


def report_broken_test(error: BaseException) -> Ending:
    """Return the ending of a test that fails whatever the program does."""
    return {
        "status": "api_error",
        "reason": f"the test itself fails: {format_exception_line(error)}",
        "cause": "broken_test",
        "missing_module": _find_missing_module(error),
    }


def _report_raised(error: BaseException) -> Ending:
    if isinstance(error, MemoryError):
        return {"status": "memory_limit", "reason": "the program raised MemoryError"}
    if isinstance(error, SystemExit):
        return {"status": "runtime_error", "reason": f"the program called sys.exit({_text(error)})"}
    return {
        "status": "runtime_error",
        "reason": f"the program raised {format_exception_line(error)}",
        "missing_module": _find_missing_module(error),
    }


def _find_missing_module(error: BaseException) -> str:
    """Return the module that was not found, as the exception names it; empty for any other exception."""
    name = error.name if type(error) is ModuleNotFoundError else ""
    return name if type(name) is str else ""


def format_exception_line(error: BaseException) -> str:
    """Format an exception like the last line of a traceback."""
    text = _text(error)
    return type(error).__name__ + (f": {text}" if text else "")


def _text(error: BaseException) -> str:
    """Return an exception's text; empty if it holds values without a text (objects of the program, long ints)."""
    try:
        return str(error)[:500].replace("\n", " ")
    except (Ended, Exception):  # noqa: BLE001 - a test's own class
        return ""


def explain_outcome(error: BaseException, source: str, run: Run) -> dict[str, str]:
    """Return the assertion, the expected value and the actual value as texts for people."""
    try:
        return _explanation(error, source, run)
    except (Ended, Exception):  # noqa: BLE001 - the outcome is fixed, whatever the texts meet
        return {}


def _explanation(error: BaseException, source: str, run: Run) -> dict[str, str]:
    frame, line = None, 0
    # The innermost frame of the test's own text is the assertion, and the frames below it are ours or the library's.
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == TEST:
            frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    if frame is None:
        return {}
    found = _statement(source, line)
    if found is None:
        return {}
    texts = {"input": segment(source, found)[:TEXT_LIMIT], "expected": "", "actual": ""}
    if run.valued:
        texts["actual"] = _shown(run.last)
    test = found.test if isinstance(found, ast.Assert) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        texts["expected"] = _evaluate_side(source, test.comparators[0], frame)
        actual = _evaluate_side(source, test.left, frame, fallback="")
        texts["actual"] = actual or texts["actual"]
    return texts


def statement_at(source: str, line: int) -> str:
    """Return the text of the innermost statement at a line of the test."""
    found = _statement(source, line)
    return "" if found is None else segment(source, found)[:TEXT_LIMIT]


def _statement(source: str, line: int) -> Value:
    found: Value = None
    for node in walk(parse(source)):
        inside = isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if inside and (found is None or node.lineno >= found.lineno):
            found = node
    return found


def _evaluate_side(source: str, node: ast.expr, frame: Value, fallback: str | None = None) -> str:
    """Return one side of a comparison for people: its value, or, without one, `fallback` (by default its source)."""
    text = segment(source, node)
    try:
        body = compile(ast.Expression(body=node), TEST, "eval", dont_inherit=True)
        return _shown(eval(body, frame.f_globals, frame.f_locals))  # noqa: S307 - the problem's own test
    except BaseException:  # noqa: BLE001 - a text for people; the outcome is fixed
        return text[:TEXT_LIMIT] if fallback is None else fallback


def _shown(value: Value) -> str:
    try:
        return repr(value)[:TEXT_LIMIT]
    except (Ended, Exception) as error:  # noqa: BLE001 - ints beyond the digits limit, a test's own classes
        return f"<{type(value).__name__}: {type(error).__name__}>"
