"""What the gateway is asked: one submission, its tests and its limits, in plain types.

`check_request` refuses what no sandbox could judge. The RPC's own messages are translated in `messages`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import msgspec

from evalrun_judge.comparison import Comparator, ComparatorName
from evalrun_judge.extraction import SubmissionMode
from evalrun_sandbox.api import digest_of


class InvalidRequestError(Exception):
    """The request can never be judged; the message names the field and says what to send instead."""


class Submission(msgspec.Struct, frozen=True):
    """A model's answer."""

    text: str
    mode: SubmissionMode = SubmissionMode.AUTO
    language: str = "python"
    truncated: bool = False
    max_characters: int = 0
    """Longer answers are cut before extraction; 0: no limit."""


class StdioTest(msgspec.Struct, frozen=True, gc=False):
    """The program reads `input` and should print `expected`."""

    input: str
    expected: str


@dataclass(init=False)
class StdioTests:
    """One test a pair of input and expected output; not to be changed."""

    inputs: list[bytes]
    """What programs read, as UTF-8."""
    expected: tuple[bytes, ...]
    """What they should print, as UTF-8."""
    named: bool = field(compare=False)
    """Callers name them by digest: sandboxes that keep inputs are given these to keep, too."""

    def __init__(self, tests: Sequence[StdioTest], *, named: bool = False) -> None:
        self.inputs = [test.input.encode("utf-8", "surrogatepass") for test in tests]
        self.expected = tuple([test.expected.encode("utf-8", "surrogatepass") for test in tests])
        self.named = named

    @cached_property
    def inputs_digest(self) -> bytes:
        """The digest by which sandboxes keep the inputs."""
        return digest_of(self.inputs)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over each test's input and expected output, as UTF-8, each after its length in 8 bytes, low first."""
        return digest_of(chain.from_iterable(zip(self.inputs, self.expected, strict=True)))

    @cached_property
    def size(self) -> int:
        """Bytes of all texts."""
        return sum(map(len, self.inputs)) + sum(map(len, self.expected))


@dataclass(frozen=True, slots=True)
class CheckTest:
    """HumanEval's form: one test, `check(entry_point)`."""

    prompt: str
    test: str
    entry_point: str


@dataclass(frozen=True, slots=True)
class AssertTests:
    """MBPP's form: each assert is a test, after `setup_code`."""

    asserts: Sequence[str]
    setup_code: str
    entry_point: str


@dataclass(frozen=True, slots=True)
class TestLimits:
    """What each test may use."""

    __test__ = False  # pytest collects classes called Test*

    time_seconds: float = 10.0
    """CPU seconds."""
    memory_mib: int = 1024
    output_kib: int = 1024
    """Of stdout and of stderr, each."""


@dataclass(frozen=True, slots=True)
class CheckerProgram:
    """A program that says whether an output is right."""

    protocol: str
    """`kattis` or `testlib`."""
    language: str
    source: str


@dataclass(frozen=True, slots=True)
class SubmitTests:
    """The tests of a row of a SandboxFusion server's dataset, which the server alone has."""

    dataset: str
    id: str


STANDARD = Comparator()


class JudgeRequest(msgspec.Struct, frozen=True):
    """One submission and what to judge it with."""

    submission: Submission
    tests: StdioTests | CheckTest | AssertTests | SubmitTests
    limits: TestLimits = TestLimits()
    comparator: Comparator = STANDARD
    checker: CheckerProgram | None = None
    stop_after_timeouts: int = 0
    request_id: str = ""
    run: str = ""
    fresh: bool = False
    """Judge anew, also where the verdict is known already."""
    size: int = 0
    """Bytes that it came in."""


MAX_TIME_SECONDS = 3600.0

_DATASET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ROW_ID = re.compile(r"[^\x00-\x1f\x7f'\"`\\\ud800-\udfff]{1,512}")
"""Stock SandboxFusion puts the id between quotes into its SQL (measured: `x' OR id=12 --` gives row 12)."""


def check_request(request: JudgeRequest, languages: Sequence[str]) -> None:
    """Refuse a request that can never be judged.

    Args:
        request: what was asked.
        languages: what the sandboxes speak.

    Raises:
        InvalidRequestError: naming the field.
    """
    _check_tests(request)
    language = request.submission.language
    if language not in languages:
        raise InvalidRequestError(f"submission.language: {language!r} is not one of {', '.join(languages)}")
    if isinstance(request.tests, CheckTest | AssertTests) and language != "python":
        raise InvalidRequestError(f"submission.language: function tests are judged in python, not in {language!r}")
    append = request.submission.mode is SubmissionMode.APPEND
    if append and not isinstance(request.tests, CheckTest | SubmitTests):
        raise InvalidRequestError(
            "submission.mode: append needs a check test, whose prompt it continues; send prompt + text as standalone"
        )
    _check_limits(request.limits)
    for name, value in (("abs", request.comparator.abs), ("rel", request.comparator.rel)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InvalidRequestError(
                f"comparator.{name}: {value} is not a tolerance; send a number that is at least 0"
            )
    _check_checker(request, languages)
    if isinstance(request.tests, SubmitTests) and request.comparator != STANDARD:
        raise InvalidRequestError("comparator: with submit the server compares, by its own rules; send none")


def check_submit(tests: SubmitTests) -> None:
    """Refuse names that mean something else than a row of a dataset to the server. Raises InvalidRequestError."""
    if not _DATASET.fullmatch(tests.dataset) or ".." in tests.dataset:
        raise InvalidRequestError(
            f"submit.dataset: {tests.dataset[:100]!r} is no dataset's name; send one of the server's /list_datasets"
        )
    if not _ROW_ID.fullmatch(tests.id) or ".." in tests.id or not tests.id.strip():
        raise InvalidRequestError(
            f"submit.id: {tests.id[:100]!r} is no row's id; send one of the server's /list_ids, without quotes, "
            "backslashes, control characters or '..'"
        )


def _check_tests(request: JudgeRequest) -> None:
    tests = request.tests
    if isinstance(tests, StdioTests):
        if not tests.inputs:
            raise InvalidRequestError("stdio.tests: there are none; a problem needs at least one")
    elif isinstance(tests, AssertTests):
        if not tests.asserts:
            raise InvalidRequestError("asserts.asserts: there are none; a problem needs at least one")
    elif isinstance(tests, SubmitTests):
        check_submit(tests)
    elif not tests.test.strip():
        raise InvalidRequestError("check.test: it is empty; send the code that defines check(candidate)")
    if isinstance(tests, CheckTest | AssertTests) and not tests.entry_point.isidentifier():
        raise InvalidRequestError(f"entry_point: {tests.entry_point!r} is not a name that a program can define")


def _check_limits(limits: TestLimits) -> None:
    if not 0 < limits.time_seconds <= MAX_TIME_SECONDS:
        raise InvalidRequestError(
            f"limits.time_seconds: {limits.time_seconds} is not between 0 and {MAX_TIME_SECONDS:g} CPU seconds"
        )
    for name, value in (("memory_mib", limits.memory_mib), ("output_kib", limits.output_kib)):
        if value <= 0:
            raise InvalidRequestError(f"limits.{name}: {value} is not above 0")


CHECKER_PROTOCOLS = ("kattis", "testlib")


def _check_checker(request: JudgeRequest, languages: Sequence[str]) -> None:
    if request.comparator.name is not ComparatorName.CHECKER:
        return
    checker = request.checker
    if checker is None or not checker.source.strip():
        raise InvalidRequestError("comparator.checker.source: it is empty; send the program that decides")
    if checker.protocol not in CHECKER_PROTOCOLS:
        raise InvalidRequestError(
            f"comparator.checker.protocol: {checker.protocol!r} is not one of {', '.join(CHECKER_PROTOCOLS)}"
        )
    if checker.language not in languages:
        raise InvalidRequestError(
            f"comparator.checker.language: {checker.language!r} is not one of {', '.join(languages)}"
        )
