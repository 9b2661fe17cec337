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
"""Reads the tests of a message in the form that the reader is registered for. Raises InvalidRequestError."""


@dataclass(frozen=True)
class Runners:
    """Interfaces with which families run programs."""

    pool: SandboxPool
    assertions: AssertionRunner


class Family(ABC, Generic[PlanT]):
    """Reads, checks, plans and runs tests of a kind."""

    FORMS: ClassVar[Mapping[str, FormReader]]
    """Readers by the name of the field of `JudgeRequest.tests` (judge.proto)."""
    TESTS: ClassVar[tuple[type, ...]]
    """Types of the family's tests."""
    FORGEABLE: ClassVar[bool]
    """Whether the candidate shares a process, or a disk, with the code that decides."""

    @abstractmethod
    def __init__(self, runners: Runners) -> None: ...

    @abstractmethod
    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse tests that can never be judged.

        Args:
            request: the request.
            sandboxes: facts about the sandboxes; None before any has replied.

        Raises:
            InvalidRequestError: the message names the field.
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
            plan: plan of this request.
            request: the request.
            on_begin: called once the request has its first slot.

        Raises:
            NoSandboxError: no sandbox could run the program.
            RunRefusedError: the request can never be served.
        """
