"""Runs a problem's assertions with a stand-in for the program, in a contained child that never sees the program.

Standard library only. Everything comes on stdin, `code` is unused.

The first line of stdin is JSON: `{"mode": "record" | "replay", "kind": "check" | "asserts", "prompt": text, "setup":
text, "entry": name, "seed": int, "names": [...], "modules": [...], "tests": [[test, source, calls, end], ...]}`. A call
is `[callee, args, kwargs]`. `end` is `[status, reason, cause]` if the process ended in the call after the last answered
call, else null. For a replay, the results of the calls follow as the call harness wrote them (`TEST CALL V ...`, `TEST
CALL E ...`). The program may have written these lines: nothing in them decides how a test ended.

Record: the stand-in returns a placeholder that agrees to everything, and the calls are noted. An argument that an
earlier call returned becomes a mark. A test that placeholders break runs again, with asserts that stop nothing.
`random` is seeded.

Replay: the stand-in returns the real values, as long as the test makes the calls that are known. If the test makes
another call, it runs once more: known calls are replayed, the following calls are recorded, and the reply lists the
calls.

The reply is JSON lines. For record the first line is `{"names": [...], "modules": [...], "imports": text, "pure":
bool}`: names of the program that the tests use beside the entry point, standard modules that they use without importing
them, the setup's imports (the only part of it that the program may see: a reference solution may stand beside them),
and whether the tests leave a process as they found it, as far as their text shows. Then each test has `{"test": id,
"calls": [...], "reached": calls that the replay came to}`, with `together` the cause why it has to run in the program's
process, or `{"test": id, "status", "reason", "input", "expected", "actual"}`, with `cause` and `missing_module` if
known, and `own_answer`, the statement in which an operator of the program's own class decided, if a success rests on
that.

How a replay ends: a call that raised, unless the test expected it, is runtime_error (MemoryError: memory_limit). A
failed or raising assertion after a call is wrong_answer. A test that fails before any call, or passes an argument that
cannot cross, is api_error.

Several requests may share a process, because a fork and its consequences cost more than most tests. Then the first line
is `{"shared": [bytes, ...]}`, and the reply to each request ends with a line `end`, or is a line `alone`: the request
is to be sent again in a process of its own. A request is sent back if its tests are not pure, which is found before any
test is executed, or if a test ran out of memory, which other requests may have used up.
"""

from __future__ import annotations

import os

from evalrun_executor.calls import values
from evalrun_executor.calls.originals import Json
from evalrun_judge.function_tests.harness.current import CURRENT
from evalrun_judge.function_tests.harness.outcome import (
    decide_ending,
    explain_outcome,
    report_broken_test,
    statement_at,
)
from evalrun_judge.function_tests.harness.problem import Problem
from evalrun_judge.function_tests.harness.run import Run

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evalrun_judge.function_tests.harness.run import Result


def record(problem: Problem, source: str) -> Json:
    """Run a test against placeholders. Return its calls, or why it cannot be judged."""
    cause, reason = problem.why_together(source)
    return _together(cause, reason) if cause else _calls(problem, source, [], [])


def _together(cause: str, reason: str) -> Json:
    return {"status": "api_error", "reason": f"{reason}, which does not reach the program", "together": cause}


def replay(problem: Problem, source: str, calls: list[Json], results: list[Result]) -> Json:
    """Run a test with the program's results. Return its outcome, or the calls that it needs."""
    run = Run(problem, calls, results, recording=False)
    CURRENT[:] = [run]
    error: BaseException | None = None
    try:
        problem.execute(source, run, tolerant=False)
    except BaseException as caught:  # noqa: BLE001 - a test may raise anything
        error = caught
    # An unknown call comes first: the test ended on it, so its exception says nothing about the program.
    if run.unknown:
        return {**_calls(problem, source, calls, results), "reached": len(run.calls)}
    outcome = {"input": "", "expected": "", "actual": "", **(run.ending or decide_ending(run, error))}
    # From here on a text of an assertion must not call the program: the outcome is fixed.
    run.frozen = True
    if outcome["status"] == "success" and run.own_answer_line:
        outcome["own_answer"] = statement_at(source, run.own_answer_line)
    elif outcome["status"] != "success" and error is not None:
        outcome.update(explain_outcome(error, source, run))
    return outcome


def _calls(problem: Problem, source: str, calls: list[Json], results: list[Result]) -> Json:
    """Record the calls of a test, with the results of known calls."""
    # Placeholders satisfy most tests as they are. Rewriting the asserts costs more than running them, so it is tried
    # last.
    for tolerant in (False, True):
        run = Run(problem, calls, results, recording=True)
        CURRENT[:] = [run]
        try:
            problem.execute(source, run, tolerant=tolerant)
        except ImportError as error:
            # No placeholder makes an import fail, and nothing of the program has run yet: the test itself is broken.
            if not results:
                return report_broken_test(error)
            continue
        except BaseException:  # noqa: BLE001, S112 - placeholders break any test, and the program may have raised
            continue
        break
    if run.ending is not None:
        return run.ending
    return {"calls": run.calls}


def _results_by_test(lines: list[bytes]) -> dict[int, list[Result]]:
    found: dict[int, list[Result]] = {}
    for line in lines:
        test, _, kind, text = line.split(b" ", 3)
        try:
            payload = values.loads(text.decode())
        except (values.ValueRefusedError, UnicodeDecodeError):
            # The payload is no JSON. An object where a list is due is reported as malformed when the test reaches the
            # call.
            kind, payload = b"V", {}
        found.setdefault(int(test), []).append((kind.decode(), payload))
    return found


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


class _AloneError(Exception):
    """The request needs a process of its own."""


def _answers(request: bytes, *, in_company: bool) -> Iterator[str]:
    """Yield the reply to a request line by line.

    Raises:
        ValueRefusedError: the request is not JSON.
        _AloneError: the request cannot share a process.
    """
    # `splitlines` would also split at separators inside of a text that the program wrote.
    first, *lines = request.rstrip(b"\n").split(b"\n")
    header: Json = values.loads(first.decode())
    problem = Problem(header)
    recording = header["mode"] == "record"
    if recording:
        yield values.dumps(problem.learn())
    if in_company and not problem.pure:
        raise _AloneError
    results = _results_by_test(lines)
    for test, source, calls, end in header["tests"]:
        problem.begin(test)
        given = results.get(test, []) + ([("D", end)] if end is not None else [])
        outcome = record(problem, source) if recording else replay(problem, source, calls, given)
        # Another test of this process may have used the memory up, so this verdict would not be the program's own.
        if in_company and outcome.get("status") == "memory_limit":
            raise _AloneError
        yield _dump_structure({"test": test, **outcome}, recording=recording)


def _dump_structure(structure: Json, *, recording: bool) -> str:
    try:
        return values.dumps(structure)
    except values.ValueRefusedError as error:
        status = "api_error" if recording else "runtime_error"
        reason = f"the test's calls hold a {error}"
        together = {"together": "arguments"} if recording else {}
        return values.dumps({"test": structure["test"], "status": status, "reason": reason, **together})


def main(code: str = "") -> None:
    """Serve the request on stdin, or several requests, and end the process.

    Raises:
        ValueRefusedError: a request is not JSON.
    """
    del code
    # A test's own output must not mix with the reply, so the reply goes to a copy of descriptor 1.
    text = _read_all(0)
    answers, errors = os.dup(1), os.dup(2)
    nowhere = os.open("/dev/null", os.O_WRONLY)
    os.dup2(nowhere, 1)
    # A test may print the program's results without end, and in each run, so its output goes nowhere.
    os.dup2(nowhere, 2)

    def write(line: str) -> None:
        data = line.encode() + b"\n"
        # A pipe may take a part of a long line only.
        while data:
            data = data[os.write(answers, data) :]

    try:
        _serve(text, write)
    # A traceback of the harness itself must reach the gateway.
    finally:
        os.dup2(errors, 2)
    os._exit(0)


def _serve(text: bytes, write: Callable[[str], None]) -> None:
    if not text.startswith(b'{"shared"'):
        for line in _answers(text, in_company=False):
            write(line)
        return
    head, _, rest = text.partition(b"\n")
    start = 0
    for size in values.loads(head.decode())["shared"]:
        request = rest[start : start + size]
        start += size
        try:
            # The lines are written together: a request that is sent back must leave no line behind.
            write("\n".join([*_answers(request, in_company=True), "end"]))
        except _AloneError:
            write("alone")
