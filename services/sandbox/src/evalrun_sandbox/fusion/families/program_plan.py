"""The plan a family makes for a completion: the program to run, its inputs, and the expected outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evalrun_sandbox.fusion.schemas import Prompt, Row, SubmitRequest, TestConfig

Case = dict[str, Any]
"""`{"input": {"stdin": str}, "output": {"stdout": str}}`."""


@dataclass(frozen=True)
class ProgramPlan:
    """A submission that is ready to run."""

    language: str
    program: str
    extracted_code: str
    compile_timeout: float
    """Seconds."""
    run_timeout: float
    """Seconds, each run."""
    cases: Sequence[Case] | None = None
    """One run per case; None: one run without input, whose exit status is the verdict."""
    full_code: str | None = None
    run_all_cases: bool = False
    """If false, cases after the first failure are not reported."""
    full_cases: bool = False
    """If true, passed cases are reported in full."""


class Family(Protocol):
    """The rules of a dataset class of the stock server."""

    def prompt(self, row: Row, dataset: str, config: TestConfig) -> Prompt:
        """Return the prompt of a row. Raises BadRequest."""
        ...

    def plan(self, row: Row, request: SubmitRequest) -> ProgramPlan:
        """Plan how to judge a completion. Raises BadRequest."""
        ...
