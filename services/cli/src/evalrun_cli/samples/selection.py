"""Parses names of samples: `PROBLEM`, `PROBLEM#SAMPLE`. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

Row = dict[str, Any]
"""A row of the results (docs/outputs.md)."""

_NUMBERED: Final = re.compile(r"(?P<problem>.+)#(?P<sample>\d+)")


@dataclass(frozen=True, slots=True)
class SampleName:
    """A problem, or a sample of it."""

    problem: str
    sample: int | None = None


def names_in(written: str) -> list[SampleName]:
    """Return the possible readings of a name, the likeliest first: a problem's id may itself end in `#1`."""
    names = [SampleName(written)]
    if match := _NUMBERED.fullmatch(written):
        names.insert(0, SampleName(match["problem"], int(match["sample"])))
    return names


def is_named(row: Row, name: SampleName, *, by_end: bool = False) -> bool:
    """Return whether a row belongs to this problem and sample.

    Args:
        row: row of the results.
        name: name as the user wrote it.
        by_end: whether the name may be the part after a slash of the problem's id.
    """
    problem = row["problem_id"]
    is_problem = problem.endswith(f"/{name.problem}") if by_end else problem == name.problem
    return bool(is_problem and name.sample in (None, row["sample"]))


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Return rows by sample, noise-floor repeat and turn."""
    return sorted(rows, key=lambda row: (row["dataset"], row["sample"] or 0, row["repeat"] or 0, row["turn"] or 0))


TEXTS_OF_A_TEST: Final = ("input", "expected_output", "stdout", "stderr", "compile_stderr")


def collect_texts(test: Row) -> dict[str, str]:
    """Return a test's texts by their columns, without empty texts. The compiler's output appears once."""
    found = {name: text for name in TEXTS_OF_A_TEST if (text := test.get(name))}
    if found.get("stderr") == found.get("compile_stderr"):
        # Python's compiler is the interpreter, so these are its errors too.
        found.pop("stderr", None)
    return found


def sort_tests(tests: Iterable[Row]) -> list[Row]:
    """Return the tests with those that failed first, otherwise in their order."""
    return sorted(tests, key=lambda test: (test["status"] == "success", test["case_index"] or 0))


def name_sample(row: Row) -> str:
    """Return `PROBLEM#SAMPLE`, with turn and noise-floor repeat where they are not the first."""
    text = f"{row['problem_id']}#{row['sample'] or 0}"
    text += f" turn {row['turn'] + 1}" if row["turn"] else ""
    return text + (f" repeat {row['repeat']}" if row["repeat"] else "")
