"""The built-in demo: problems with recorded completions of mixed quality, including hostile programs.

One TOML file a problem in `problems/`: statement, tests, a reference solution and the answers, to be read from top to
bottom. TOML because its literal strings hold code as it is, without escapes.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, NotRequired, TypedDict

from evalrun_data.records import AssertTests, CheckTest, GroundTruth, Problem, StdioTests
from evalrun_registry.limits import PartialLimits
from evalrun_runtime.exits import BadInputError

DATASET: Final = "demo"
SOURCE: Final = "builtin:demo"

# The limits are small, so that programs that never end do not make the demo slow.
_LIMITS: Final = PartialLimits(time_seconds=1.0, memory_mib=256)


class _Test(TypedDict):
    input: str
    output: str


class _Answer(TypedDict):
    text: str
    finish_reason: NotRequired[str]


class _File(TypedDict):
    """A problem's file. It has exactly one of `tests`, `check` and `asserts`."""

    id: str
    difficulty: str
    prompt: str
    tests: NotRequired[list[_Test]]
    check: NotRequired[str]
    asserts: NotRequired[list[str]]
    entry_point: NotRequired[str]
    solution: str
    """A complete correct program: for readers, and for tests of the tests."""
    answers: list[_Answer]


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """A recorded model answer."""

    problem_id: str
    sample: int
    text: str
    finish_reason: str


def check_name(source: str) -> None:
    """Raise BadInputError unless the name is `builtin:demo`."""
    if source != SOURCE:
        raise BadInputError(f"{source}: no such built-in dataset (there is {SOURCE})")


def problems() -> list[Problem]:
    """Return the demo's problems, sorted by file name."""
    return [
        Problem(
            dataset=DATASET,
            problem_id=f"demo/{file['id']}",
            prompt=file["prompt"],
            ground_truth=_tests(file),
            split="test",
            data_source="evalrun/demo",
            difficulty=file["difficulty"],
            limits=_LIMITS,
        )
        for file in _files()
    ]


def answers() -> list[DemoAnswer]:
    """Return every recorded completion: sample 0 of each problem is from greedy decoding, further samples follow."""
    return [
        DemoAnswer(f"demo/{file['id']}", sample, answer["text"], answer.get("finish_reason", "stop"))
        for file in _files()
        for sample, answer in enumerate(file["answers"])
    ]


def _tests(file: _File) -> GroundTruth:
    if "tests" in file:
        return StdioTests(
            tuple(test["input"] for test in file["tests"]), tuple(test["output"] for test in file["tests"])
        )
    if "check" in file:
        return CheckTest(file["prompt"], file["check"], file["entry_point"])
    return AssertTests(tuple(file["asserts"]), "", file["entry_point"])


@cache
def _files() -> tuple[_File, ...]:
    directory = files(__name__) / "problems"
    found = sorted(
        (entry for entry in directory.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name
    )
    # Our own package data: a test reads every file, so its shape is not checked again here.
    return tuple(_File(**tomllib.loads(entry.read_text("utf-8"))) for entry in found)  # type: ignore[typeddict-item]
