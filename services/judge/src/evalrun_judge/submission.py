"""A request to the gateway in plain types: a submission, its tests and its limits.

`check_request` refuses what no sandbox could judge. The RPC's own messages are translated in `messages`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Protocol

import msgspec

from evalrun_executor.api import digest_inputs
from evalrun_judge.extraction import Extraction, SubmissionMode, extract
from evalrun_registry.comparators import CHECKER, Comparator
from evalrun_registry.languages import LANGUAGES
from evalrun_registry.limits import DEFAULT_LIMITS, TestLimits


class InvalidRequestError(Exception):
    """The request can never be judged; the message names the field and says what to send instead."""


class Submission(msgspec.Struct, frozen=True):
    """A model's completion."""

    text: str
    mode: SubmissionMode = SubmissionMode.AUTO
    language: str = "python"
    truncated: bool = False
    max_characters: int = 0
    """Longer completions are cut before extraction; 0: no limit."""
    prelude: str = ""
    """Python code before a program of stdin/stdout tests, if the program is Python."""


class Tests(Protocol):
    """The tests of a request. Each family has types of its own, which derive from this class.

    The types stand in the family's module, except for types that other modules need, which stand below.
    """

    __slots__ = ()

    @property
    def sought_function(self) -> str:
        """The Python function by which a program is chosen among a completion's blocks; empty: any program."""
        return ""

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return each test's input and expected output for display."""
        ...


class StdioTest(msgspec.Struct, frozen=True, gc=False):
    """The program reads `input` and should print `expected`."""

    input: str
    expected: str


@dataclass(init=False)
class StdioTests(Tests):
    """Tests as pairs of input and expected output. Immutable."""

    inputs: list[bytes]
    """Inputs of the programs, as UTF-8."""
    expected: tuple[bytes, ...]
    """Expected outputs, as UTF-8."""
    named: bool = field(compare=False)
    """Whether callers name the tests by digest: sandboxes with a cache then cache the inputs, too."""

    def __init__(self, tests: Sequence[StdioTest], *, named: bool = False) -> None:
        self.inputs = [test.input.encode("utf-8", "surrogatepass") for test in tests]
        self.expected = tuple([test.expected.encode("utf-8", "surrogatepass") for test in tests])
        self.named = named

    @cached_property
    def inputs_digest(self) -> bytes:
        """The digest by which sandboxes cache the inputs."""
        return digest_inputs(self.inputs)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over each test's input and expected output, each after its length in 8 little-endian bytes."""
        return digest_inputs(chain.from_iterable(zip(self.inputs, self.expected, strict=True)))

    @cached_property
    def size(self) -> int:
        """Bytes of all texts."""
        return sum(map(len, self.inputs)) + sum(map(len, self.expected))

    def digest_part(self, part: range) -> bytes:
        """Return the digest by which sandboxes keep the inputs of a part."""
        if part not in self._parts:
            self._parts[part] = digest_inputs(self.inputs[part.start : part.stop])
        return self._parts[part]

    @cached_property
    def _parts(self) -> dict[range, bytes]:
        return {range(len(self.inputs)): self.inputs_digest}

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return each test's input and expected output."""
        return [*zip(self.inputs, self.expected, strict=True)]


@dataclass(frozen=True, slots=True)
class CheckTest(Tests):
    """A test in HumanEval's form: `check(entry_point)`."""

    prompt: str
    test: str
    entry_point: str

    @property
    def sought_function(self) -> str:
        """The function that is checked."""
        return self.entry_point

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return the asserting code as the input of the only test."""
        return [(_bytes(f"{self.test}\n\ncheck({self.entry_point})"), b"")]


@dataclass(frozen=True, slots=True)
class AssertTests(Tests):
    """MBPP's form: each assert is a test, after `setup_code`."""

    asserts: Sequence[str]
    setup_code: str
    entry_point: str
    prelude: str = ""
    """Code before the program, whatever the submission's mode."""

    @property
    def sought_function(self) -> str:
        """The function that the asserts call."""
        return self.entry_point

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return each assert, as its test's input."""
        return [(_bytes(test), b"") for test in self.asserts]


@dataclass(frozen=True, slots=True)
class CheckerProgram:
    """A program that decides whether an output is right."""

    protocol: str
    """`kattis` or `testlib`."""
    language: str
    source: str


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


STANDARD = Comparator()


class FunctionTestMode(StrEnum):
    """Process in which the assertions of function tests run."""

    AUTO = "auto"
    """Apart unless the tests' text shows that they need the program's process."""
    APART = "apart"
    TOGETHER = "together"


class JudgeRequest(msgspec.Struct, frozen=True):
    """A submission with its tests, limits and options."""

    submission: Submission
    tests: Tests
    limits: TestLimits = DEFAULT_LIMITS
    comparator: Comparator = STANDARD
    checker: CheckerProgram | None = None
    stop_after_timeouts: int = 0
    stop_at_failure: bool = False
    """Whether judging may stop at the first failed test, because only acceptance is asked for."""
    function_tests: FunctionTestMode = FunctionTestMode.AUTO
    request_id: str = ""
    run: str = ""
    fresh: bool = False
    """Judge again even if the verdict is cached."""
    size: int = 0
    """Bytes of the request's message."""


MAX_TIME_SECONDS = 3600.0


def check_request(request: JudgeRequest, languages: Sequence[str]) -> None:
    """Refuse a request that can never be judged, whatever its tests are; the tests are checked by their family.

    Args:
        request: the request.
        languages: languages of the sandboxes.

    Raises:
        InvalidRequestError: the message names the field.
    """
    language = request.submission.language
    if language not in languages:
        raise InvalidRequestError(f"submission.language: {language!r} is not one of {', '.join(languages)}")
    _check_limits(request.limits)
    for name, value in (("abs", request.comparator.abs), ("rel", request.comparator.rel)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InvalidRequestError(
                f"comparator.{name}: {value} is not a tolerance; send a number that is at least 0"
            )
    _check_checker(request, languages)


def extract_program(submission: Submission, sought_function: str = "") -> Extraction:
    """Return the program in a completion; see `Tests.sought_function`."""
    return extract(
        submission.text,
        language=submission.language,
        mode=submission.mode,
        truncated=submission.truncated,
        max_characters=submission.max_characters,
        entry_point=sought_function,
    )


def refuse_append(request: JudgeRequest) -> None:
    """Raise InvalidRequestError if the completion continues a prompt that its tests do not have."""
    if request.submission.mode is SubmissionMode.APPEND:
        raise InvalidRequestError(
            "submission.mode: append needs a check test, whose prompt it continues; send prompt + text as standalone"
        )


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
    if request.comparator.name != CHECKER:
        return
    checker = request.checker
    if checker is None or not checker.source.strip():
        raise InvalidRequestError("comparator.checker.source: it is empty; send the program that decides")
    if checker.protocol not in CHECKER_PROTOCOLS:
        raise InvalidRequestError(
            f"comparator.checker.protocol: {checker.protocol!r} is not one of {', '.join(CHECKER_PROTOCOLS)}"
        )
    able = [name for name in languages if name in LANGUAGES and LANGUAGES[name].checker]
    if checker.language not in able:
        raise InvalidRequestError(f"comparator.checker.language: {checker.language!r} is not one of {', '.join(able)}")
