"""Reads the reply to a batch of calls. Pure. Every byte is treated as hostile: the program may have written it.

The format is that of `call_harness`. Payloads are not parsed here, except for texts that people see: they go on, line
by line, to the assertions' contained child. The calls' ids must come in the batch's order; from the first unexpected
line on, nothing counts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from evalrun_executor.api import ProgramRun
from evalrun_judge.cpython_texts import parse_package
from evalrun_judge.status import TestCause, TestStatus
from evalrun_judge.verdict import UNCONFIRMED

NOT_RUN: Final = "the sandbox did not run the calls"
PRINT_LIMIT: Final = 65536
"""Maximum characters kept of the output of a test's calls."""
MAX_TEXT: Final = 256 * 1024
"""Maximum bytes of a payload that is parsed here; the harness writes less. 48 MiB of `[],[],...` would take 2 GiB of
the gateway's memory."""


@dataclass(slots=True)
class TestAnswers:
    """Results of the calls of a test."""

    # pytest collects classes called Test*.
    __test__ = False

    lines: list[bytes] = field(default_factory=list)
    """One line per call, in the form that the assertion harness reads."""
    printed: str = ""
    complete: bool = False
    """Whether every call of the test has a result."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Outcome of a test whose process ended."""

    status: TestStatus
    reason: str = ""
    cause: TestCause | None = None
    missing_module: str = ""
    """Package that Python did not find, if that ended the test."""


@dataclass(frozen=True, slots=True)
class BatchAnswers:
    """Results of one process."""

    loaded: bool
    """Whether the program was executed to its end."""
    load_end: Ending | None
    """Outcome of loading, if the program was not loaded."""
    tests: tuple[TestAnswers, ...]
    """Results in the batch's order; empty after the test in which the process ended."""
    end: Ending
    """Outcome of the test whose process ended in a call or wrote an unreadable line."""


def read_answers(run: ProgramRun, calls: Sequence[tuple[int, int]]) -> BatchAnswers:
    """Read the reply to a batch.

    Args:
        run: the process that made the calls.
        calls: the batch: each test's id and number of calls.
    """
    most = 2 + 2 * sum(count for _, count in calls)
    lines = run.stdout.split(b"\n", most)
    # The last part is an unfinished line, or empty, or a text that the harness does not write.
    lines.pop()
    first = lines[0] if lines else b""
    tests = tuple(TestAnswers() for _ in calls)
    if first != b"load V null":
        if first.startswith(b"load E "):
            return BatchAnswers(loaded=False, load_end=_load_error(first[7:]), tests=tests, end=_nonsense())
        end = _nonsense() if first else decide_ending(run)
        load_end = end
        if end.status is not TestStatus.API_ERROR:
            when = f"while it was loaded: {end.reason}" if end.reason else "while the program was loaded"
            load_end = Ending(end.status, when)
        return BatchAnswers(loaded=False, load_end=load_end, tests=tests, end=end)
    position = 1
    for (test, count), answers in zip(calls, tests, strict=True):
        position = _read_test(lines, position, test, count, answers)
        if not answers.complete:
            break
    end = _nonsense() if position < len(lines) else decide_ending(run)
    return BatchAnswers(loaded=True, load_end=None, tests=tests, end=end)


def _read_test(lines: list[bytes], position: int, test: int, count: int, answers: TestAnswers) -> int:
    """Read the lines of a test. Return the position after them."""
    for number in range(count):
        head = b"%d %d " % (test, number)
        if position < len(lines) and lines[position].startswith(head + b"P "):
            answers.printed = (answers.printed + _parse_string(lines[position][len(head) + 2 :]))[:PRINT_LIMIT]
            position += 1
        if position >= len(lines) or not _is_answer(lines[position], head):
            return position
        answers.lines.append(lines[position])
        position += 1
    answers.complete = True
    return position


def _is_answer(line: bytes, head: bytes) -> bool:
    """Return whether the call harness can have written the line: ASCII, without characters that end a line."""
    return line.startswith((head + b"V ", head + b"E ", head + b"S ")) and line.isascii() and b"\r" not in line


def decide_ending(run: ProgramRun) -> Ending:
    """Return the outcome of the test in whose call the process ended."""
    match run.end:
        case "timeout":
            if run.confirmed or not run.measured:
                return Ending(TestStatus.TIMEOUT)
            return Ending(TestStatus.API_ERROR, UNCONFIRMED, TestCause.UNCONFIRMED)
        case "memory_limit":
            return Ending(TestStatus.MEMORY_LIMIT)
        case "output_limit":
            return Ending(TestStatus.RUNTIME_ERROR, "the program wrote or returned more than the output limit")
        case "not_run":
            return Ending(TestStatus.API_ERROR, NOT_RUN, TestCause.NOT_RUN)
    code = run.exit_code
    if code is not None and code < 0:
        return Ending(TestStatus.RUNTIME_ERROR, f"the program was ended by signal {-code}")
    return Ending(TestStatus.RUNTIME_ERROR, f"the program ended the process with exit code {code}")


def _nonsense() -> Ending:
    return Ending(TestStatus.RUNTIME_ERROR, "the program wrote into the judge's channel")


def _parse_json(text: bytes) -> object:
    """Return the JSON value of a text; None if the text is no JSON, or is larger than the harness writes."""
    if len(text) > MAX_TEXT:
        return None
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed


def _parse_string(text: bytes) -> str:
    printed = _parse_json(text)
    return printed if isinstance(printed, str) else ""


def _load_error(text: bytes) -> Ending:
    parts = _parse_json(text)
    if not isinstance(parts, dict):
        return _nonsense()
    name, message = str(parts.get("type"))[:200], str(parts.get("message"))[:300].replace("\n", " ")
    if parts.get("base") == "MemoryError":
        return Ending(TestStatus.MEMORY_LIMIT, "the program raised MemoryError while it was loaded")
    if parts.get("base") == "SystemExit":
        return Ending(TestStatus.RUNTIME_ERROR, f"the program called sys.exit({message}) while it was loaded")
    why = f"the program raised {name}{': ' if message else ''}{message} while it was loaded"
    missing = parse_package(parts.get("name")) if name == ModuleNotFoundError.__name__ else ""
    return Ending(TestStatus.RUNTIME_ERROR, why, missing_module=missing)
