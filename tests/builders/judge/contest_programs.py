"""Contest problems and programs of known verdicts: `tests/contest/problems.txt`, and a file for each language.

A problem's test is `=== PROBLEM`, the input, `---`, the output. A right program is `=== PROBLEM success` and its text.
Any other is `=== PROBLEM STATUS: its mistake` and edits of that text: lines that begin with `-` are replaced by those
with `+` below them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evalrun_data.records import Problem, StdioTests
from evalrun_registry.limits import PartialLimits

DIRECTORY = Path(__file__).parents[2] / "contest"
LANGUAGES = ("go", "java", "javascript", "rust", "typescript")
LIMITS = PartialLimits(time_seconds=1.5, memory_mib=64)
"""The right programs take at most a third of it."""


@dataclass(frozen=True)
class ContestProgram:
    """A program of a language, and the status of the first test that it fails: `success` where it fails none."""

    problem: str
    status: str
    mistake: str
    text: str


def load_problems() -> Mapping[str, Problem]:
    """Return the problems by name."""
    tests: dict[str, list[tuple[str, str]]] = {}
    for name, body in _parts(DIRECTORY / "problems.txt"):
        given, _, expected = body.partition("---\n")
        tests.setdefault(name, []).append((given, expected))
    return {
        name: Problem(
            dataset="contest",
            problem_id=name,
            prompt=f"Solve {name}.",
            ground_truth=StdioTests(tuple(given for given, _ in pairs), tuple(wanted for _, wanted in pairs)),
            limits=LIMITS,
        )
        for name, pairs in tests.items()
    }


def load_programs(language: str) -> list[ContestProgram]:
    """Return the programs of a language, each problem's right one before those with a mistake."""
    right: dict[str, str] = {}
    programs = []
    for title, body in _parts(DIRECTORY / f"{language}.txt"):
        filed, _, mistake = title.partition(": ")
        problem, status = filed.split()
        if status == "success":
            right[problem] = body
        programs.append(ContestProgram(problem, status, mistake, edit(right[problem], body) if mistake else body))
    return programs


def edit(text: str, edits: str) -> str:
    """Replace in `text` each block of `-` lines, which is there once, by the `+` lines below it."""
    for old, new in _blocks(edits):
        assert text.count(old) == 1, f"{text.count(old)} times in the program: {old}"
        text = text.replace(old, new)
    return text


def _blocks(edits: str) -> Iterator[tuple[str, str]]:
    old: list[str] = []
    new: list[str] = []
    for line in edits.splitlines():
        if line[0] == "-" and new:
            yield "\n".join(old), "\n".join(new)
            old, new = [], []
        (new if line[0] == "+" else old).append(line[1:])
    yield "\n".join(old), "\n".join(new)


def _parts(file: Path) -> Iterator[tuple[str, str]]:
    for part in file.read_text().removeprefix("=== ").split("\n=== "):
        title, _, body = part.partition("\n")
        yield title, f"{body.rstrip()}\n"
