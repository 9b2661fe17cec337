"""The problem record: a single shape for every dataset, with typed tests.

Plain frozen dataclasses, so that importing them costs nothing and every part may hold them. Texts are kept as they were
read: no stripping, no line ending changed. A training split has megabytes of tests a problem; `iter_problems` streams.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_data.families.asserts import AssertTests
from evalrun_data.families.calls import CallTests
from evalrun_data.families.check import CheckTest
from evalrun_data.families.ground_truth import GroundTruth
from evalrun_data.families.main import MainTest
from evalrun_data.families.reference import Reference
from evalrun_data.families.server import ServerTests
from evalrun_data.families.stdio import TEST_GROUPS, StdioTests, TestGroup
from evalrun_registry.limits import UNSET_LIMITS, PartialLimits

__all__ = [
    "ROLES",
    "TEST_GROUPS",
    "AssertTests",
    "CallTests",
    "CheckTest",
    "Checker",
    "GroundTruth",
    "MainTest",
    "Message",
    "Problem",
    "ProblemComparator",
    "Reference",
    "Role",
    "ServerTests",
    "StdioTests",
    "TestGroup",
    "canonical_text",
]

Role = Literal["train", "dev", "test"]
ROLES: Final[tuple[Role, ...]] = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Checker:
    """A program that decides about (input, expected, stdout)."""

    protocol: Literal["kattis", "testlib"]
    language: str
    source: str


@dataclass(frozen=True, slots=True)
class ProblemComparator:
    """A problem's own comparator; fields that are None were not given."""

    name: str
    case_sensitive: bool | None = None
    abs: float | None = None
    rel: float | None = None
    checker: Checker | None = None
    by_format: bool = False
    """Comparator of the dataset's authors: used unless the run names one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with its tests. `(dataset, problem_id)` is its permanent key."""

    dataset: str
    problem_id: str
    prompt: str
    """The published text, byte for byte."""
    ground_truth: GroundTruth
    split: str = ""
    data_source: str = ""
    difficulty: str = ""
    sandbox_dataset: str = ""
    sandbox_id: str = ""
    language: str = "python"
    """A name of `evalrun_registry.languages.LANGUAGES`."""
    limits: PartialLimits = UNSET_LIMITS
    comparator: ProblemComparator | None = None
    """None: the comparator of the dataset."""
    messages: tuple[Message, ...] = ()
    """The chat as published, if the source has a chat (verl); it is then sent unchanged."""
    role: Role | Literal[""] = ""
    """Role of the problem; empty if the source does not say."""
    date: str = ""
    """Day of publication, as 2024-08-31: a model that was trained before cannot contain the problem. Empty if unknown.
    """
    tags: tuple[str, ...] = ()
    """Topics, by which metrics are grouped."""
    licence: str = ""
    """Licence of this problem, where the source names one per row; empty: the dataset's."""

    @property
    def key(self) -> tuple[str, str]:
        """(dataset, problem_id)."""
        return self.dataset, self.problem_id

    @property
    def family(self) -> str:
        """Form of its tests."""
        return self.ground_truth.family

    @property
    def test_count(self) -> int:
        """Number of tests; at least 1, unless a server has them."""
        return self.ground_truth.count

    @property
    def canonical_text(self) -> str:
        """The prompt for hashing and comparing, never for a model; see `canonical_text`."""
        return canonical_text(self.prompt)

    @property
    def prompt_sha256(self) -> str:
        """Hex SHA-256 of the canonical text as UTF-8. Computed at each call: always of this prompt."""
        return hashlib.sha256(self.canonical_text.encode()).hexdigest()


_BLANKS = re.compile(r"[^\S\n]+")


def canonical_text(text: str) -> str:
    """CRLF to LF, NFC, runs of blanks within a line to a space, stripped.

    Line breaks stay: they carry meaning in code and in the layout of samples.
    """
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", text.replace("\r\n", "\n"))).strip()
