"""Splits tests into waves where the first failure decides: a wave runs only if no earlier test has failed. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from evalrun_executor.api import RunReply
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import find_failure
from evalrun_registry.languages import LANGUAGES

FIRST: Final = 1
"""Tests of the first wave: most wrong programs fail the first test."""
GROWTH: Final = 4
"""Each wave has this many times the tests of the wave before, so that a right program costs only a few more calls."""


def make_waves(count: int, language: str) -> Sequence[range]:
    """Return the indices of each wave; a single one where each call would compile the program again."""
    if LANGUAGES[language].is_compiled:
        return [range(count)]
    waves, start, size = [], 0, FIRST
    while start < count:
        waves.append(range(start, min(start + size, count)))
        start, size = start + size, size * GROWTH
    return waves


def has_failed(statuses: Iterable[TestStatus]) -> bool:
    """Return whether a test has failed. A test that could not be judged does not count as failed."""
    return any(status not in (TestStatus.SUCCESS, TestStatus.API_ERROR) for status in statuses)


def count_decided(reply: RunReply) -> int | None:
    """Return the number of runs before the first run that was left out, if one of them has failed; else None."""
    ended = [run for run in reply.runs if run.end != "not_run"]
    failures = (find_failure(run) for run in ended)
    has_failure = any(failure is not None and failure.status is not TestStatus.API_ERROR for failure in failures)
    return len(ended) if has_failure and len(ended) < len(reply.runs) else None
