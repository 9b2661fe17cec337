"""The problem record: one shape for every dataset, with typed tests.

Plain frozen dataclasses, so that importing them costs nothing and every part may hold them. Texts are kept as they were
read: no stripping, no line ending changed. A training split has megabytes of tests a problem; `iter_problems` streams.
"""

import hashlib
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

Language = Literal["python", "c", "cpp"]
LANGUAGES: Final[tuple[Language, ...]] = ("python", "c", "cpp")

TestGroup = Literal["public", "private", "generated"]
TEST_GROUPS: Final[tuple[TestGroup, ...]] = ("public", "private", "generated")

Role = Literal["train", "dev", "test"]
ROLES: Final[tuple[Role, ...]] = ("train", "dev", "test")

Family = Literal["stdio", "check", "asserts", "main", "server", "reference"]
"""`stdio`: a program that reads stdin; `check`: HumanEval's form; `asserts`: MBPP's form; `main`: MultiPL-E's form;
`server`: not known here; `reference`: what a grader compares with."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class StdioTests:
    """One test a pair: the program reads `inputs[i]` on stdin and should print `outputs[i]`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    groups: tuple[TestGroup, ...] = ()
    """Group of each test; empty if the source does not say."""
    prelude: str = ""
    """Python code before the program, where that is Python: the imports that a benchmark's own harness offers."""

    @property
    def count(self) -> int:
        """Number of tests."""
        return len(self.inputs)

    def of_groups(self, wanted: Collection[str]) -> "StdioTests":
        """Return the tests of these groups, in order. Meaningful only if `groups` is not empty."""
        kept = [i for i, group in enumerate(self.groups) if group in wanted]
        return StdioTests(
            tuple(self.inputs[i] for i in kept),
            tuple(self.outputs[i] for i in kept),
            tuple(self.groups[i] for i in kept),
            self.prelude,
        )


@dataclass(frozen=True, slots=True)
class CheckTest:
    """HumanEval's form: `test` defines `check`, which is called with the function; one test."""

    prompt: str
    """The raw prompt: assertions of 32, 38 and 50 call helpers that it defines."""
    test: str
    entry_point: str

    @property
    def count(self) -> int:
        """Number of tests: the whole check is one."""
        return 1


@dataclass(frozen=True, slots=True)
class AssertTests:
    """MBPP's form: the program runs, then the setup code, then each assert, which is a test of its own."""

    test_list: tuple[str, ...]
    test_setup_code: str
    entry_point: str
    prelude: str = ""
    """Code before the program: the imports that a benchmark's own harness offers to programs."""

    @property
    def count(self) -> int:
        """Number of tests: one an assert."""
        return len(self.test_list)


@dataclass(frozen=True, slots=True)
class MainTest:
    """MultiPL-E's form, in C++: one test, a `main` that asserts and follows the program in the same file."""

    prompt: str
    """Ends within the function that the answer completes."""
    main: str
    """The whole function `int main() { ... }`."""
    entry_point: str

    @property
    def count(self) -> int:
        """Number of tests: all asserts are one."""
        return 1


@dataclass(frozen=True, slots=True)
class ServerTests:
    """A SandboxFusion server has the tests, in the row that the problem names; judgeMode: Submit only."""

    @property
    def count(self) -> int:
        """Number of tests: none here."""
        return 0


@dataclass(frozen=True, slots=True)
class Reference:
    """Arguments of a grader (a user's `compute_score`) besides the answer; only if the dataset names one."""

    ground_truth: str
    """As JSON: what the row holds, a text more often than not."""
    extra_info: str = "{}"
    """As JSON: the row's object of that name."""

    @property
    def count(self) -> int:
        """Number of tests: the grader's run is one."""
        return 1


GroundTruth = StdioTests | CheckTest | AssertTests | MainTest | ServerTests | Reference


@dataclass(frozen=True, slots=True)
class ProblemLimits:
    """A problem's own limits; None: the dataset's apply."""

    time_seconds: float | None = None
    """CPU seconds a test."""
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Checker:
    """A program that decides: given (input, expected, stdout) it says yes or no."""

    protocol: Literal["kattis", "testlib"]
    language: Language
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
    """Comparator of the data set's authors: used unless the run names one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its tests. `(dataset, problem_id)` is its permanent key."""

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
    language: Language = "python"
    limits: ProblemLimits = ProblemLimits()
    comparator: ProblemComparator | None = None
    """None: the dataset's."""
    messages: tuple[Message, ...] = ()
    """The chat as published, where the source has one (verl); it is then sent as it is."""
    role: Role | Literal[""] = ""
    """Role of the problem; empty if the source does not say."""
    date: str = ""
    """Day of publication, as 2024-08-31: what a model was trained on later cannot hold it. Empty if not known."""

    @property
    def key(self) -> tuple[str, str]:
        """(dataset, problem_id)."""
        return self.dataset, self.problem_id

    @property
    def family(self) -> Family:
        """Form of its tests."""
        match self.ground_truth:
            case StdioTests():
                return "stdio"
            case CheckTest():
                return "check"
            case AssertTests():
                return "asserts"
            case MainTest():
                return "main"
            case ServerTests():
                return "server"
            case Reference():
                return "reference"

    @property
    def test_count(self) -> int:
        """Number of tests; at least one, unless a server has them."""
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
    """CRLF to LF, NFC, runs of blanks within a line to one space, stripped.

    Line breaks stay: they carry meaning in code and in the layout of samples.
    """
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", text.replace("\r\n", "\n"))).strip()
