"""Interface of a test family.

A new family is three files: a module beside this one, its record in `evalrun_data.families`, and its message in
`JudgeRequest.tests` (judge.proto). `registry` finds the module.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from evalrun_judge.cache.verdict_cache import Judged
from evalrun_judge.extraction import Extraction
from evalrun_judge.function_tests.assertions import AssertionRunner
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.submission import JudgeRequest, Tests
from evalrun_judge.suites import Suites
from evalrun_proto.judge.v1 import judge_pb2

PlanT = TypeVar("PlanT")

FormReader = Callable[[judge_pb2.JudgeRequest, Suites], Tests]
"""Reads the tests of a message, which are in the form that it is registered for. Raises InvalidRequestError."""


@dataclass(frozen=True)
class Runners:
    """Interfaces with which families run programs."""

    pool: SandboxPool
    assertions: AssertionRunner


class Family(ABC, Generic[PlanT]):
    """Reads, checks, plans and runs one kind of tests."""

    FORMS: ClassVar[Mapping[str, FormReader]]
    """By the name of the field of `JudgeRequest.tests` (judge.proto) that it reads."""
    TESTS: ClassVar[tuple[type, ...]]
    """The types of its tests."""
    FORGEABLE: ClassVar[bool]
    """The candidate shares a process, or a disk, with what decides."""

    @abstractmethod
    def __init__(self, runners: Runners) -> None: ...

    @abstractmethod
    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse tests that can never be judged.

        Args:
            request: what was asked.
            sandboxes: what the sandboxes are; None before any has answered.

        Raises:
            InvalidRequestError: naming the field.
        """

    @abstractmethod
    def plan(self, request: JudgeRequest, extraction: Extraction) -> PlanT | None:
        """Return the runs to make, or None if the text contains no program. Raises InvalidRequestError."""

    @abstractmethod
    def key(self, plan: PlanT, request: JudgeRequest) -> object | None:
        """Return the program and tests that a verdict depends on (msgpack), or None if it may not be cached."""

    @abstractmethod
    async def judge(self, plan: PlanT, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Execute the plan and return the outcome of each test.

        Args:
            plan: of this request.
            request: what was asked.
            on_begin: called once it has its first slot.

        Raises:
            NoSandboxError: no sandbox could say what the program does.
            RunRefusedError: the request can never be served.
        """
