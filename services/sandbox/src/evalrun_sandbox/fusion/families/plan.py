"""What a family says of a completion: the program to run, its inputs, and what they must print."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evalrun_sandbox.fusion.wire import Prompt, Row, SubmitRequest, TestConfig

Case = dict[str, Any]
"""`{"input": {"stdin": str}, "output": {"stdout": str}}`."""


@dataclass(frozen=True)
class Plan:
    """One submission, ready to run."""

    language: str
    program: str
    extracted_code: str
    compile_timeout: float
    """Seconds."""
    run_timeout: float
    """Seconds, each run."""
    cases: Sequence[Case] | None = None
    """One run each; None: one run without input, whose exit status is the verdict."""
    full_code: str | None = None
    run_all_cases: bool = False
    """False: nothing after the first failed case is reported."""
    full_cases: bool = False
    """True: passed cases are reported uncut."""


class Family(Protocol):
    """The rules of one dataset class of the stock server."""

    def prompt(self, row: Row, dataset: str, config: TestConfig) -> Prompt:
        """Show a row. Raises BadRequest."""
        ...

    def plan(self, row: Row, request: SubmitRequest) -> Plan:
        """Plan how to judge a completion. Raises BadRequest."""
        ...
