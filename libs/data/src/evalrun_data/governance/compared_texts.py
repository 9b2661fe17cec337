"""Texts of a problem that the audit compares: its prompt, the asserts shown with it, and the published solution.

Training texts often hold a problem together with its solution, so a comparison of prompts alone finds fewer copies.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, get_args

from evalrun_data.governance.part_matches import PartName
from evalrun_data.governance.shingles import split_words
from evalrun_data.records import AssertTests, Problem, canonical_text
from evalrun_data.rows import Row
from evalrun_data.sources import open_source, rows_of_bytes
from evalrun_runtime.exits import BadInputError

MIN_STATEMENT_WORDS: Final = 6
TRAIN: Final = "train"
"""Role of a training split."""
PARTS: Final[tuple[PartName, ...]] = get_args(PartName)
_DOCSTRING: Final = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_EXAMPLES: Final = re.compile(r"^\s*(?:>>>|Examples?\b|For example)", re.MULTILINE)
_SOLUTION_FIELDS: Final = ("canonical_solution", "code", "reference_solution")


@dataclass(frozen=True, slots=True)
class ProblemText:
    """The texts of a problem that the audit compares."""

    problem_id: str
    exact: tuple[str, ...]
    """SHA-256 of each canonical text that counts as this very problem: the prompt first."""
    text: str
    """All of it: prompt, solution, asserts."""
    parts: Mapping[PartName, str] = field(default_factory=dict)
    """Parts that are compared by themselves. Without parts, the statement is searched in the text."""

    @property
    def compared_parts(self) -> Mapping[PartName, str]:
        """The parts that are searched for in other texts."""
        return self.parts or {"statement": find_statement(self.text)}

    @property
    def json_line(self) -> str:
        """The text as it stands in `data_manifests/texts/`, with its line break."""
        content = {"problem_id": self.problem_id, "exact": self.exact, "text": self.text}
        return json.dumps(content | ({"parts": self.parts} if self.parts else {})) + "\n"


def find_statement(prompt: str) -> str:
    """Return the task of a prompt in words: its last docstring, or the whole prompt, without examples."""
    docstrings = [text for pair in _DOCSTRING.findall(prompt) for text in pair if text]
    whole = docstrings[-1] if docstrings else prompt
    words = _EXAMPLES.split(whole)[0]
    return words if len(split_words(words)) >= MIN_STATEMENT_WORDS else whole


def find_solution(row: Row) -> str:
    """Return the solution published with a problem's row; empty without a solution."""
    extra = row.values.get("extra_info")
    for values in (row.values, extra if isinstance(extra, dict) else {}):
        for name in _SOLUTION_FIELDS:
            if isinstance(value := values.get(name), str):
                return value
    return ""


def problem_text(problem: Problem, solution: str) -> ProblemText:
    """Return the text of a problem with the solution published beside it, if any."""
    shown = isinstance(problem.ground_truth, AssertTests) and not problem.messages
    asserts = problem.ground_truth.test_list if shown and isinstance(problem.ground_truth, AssertTests) else ()
    # HumanEval's solution continues its prompt; MBPP's follows the task.
    whole = (problem.prompt + solution, f"{problem.prompt}\n{solution}") if solution else ()
    exact = dict.fromkeys(text_sha256(text) for text in (problem.prompt, *whole))
    parts: dict[PartName, str] = {"statement": find_statement(problem.prompt)}
    if solution:
        parts["solution"] = solution
    if asserts:
        parts["tests"] = "\n".join(asserts)
    return ProblemText(problem.problem_id, tuple(exact), "\n".join((problem.prompt, solution, *asserts)), parts)


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text's canonical form: of a prompt, its `prompt_sha256`."""
    return hashlib.sha256(canonical_text(text).encode()).hexdigest()


class Texts(Protocol):
    """The texts of a dataset: read in order, and again by their position."""

    def __iter__(self) -> Iterator[ProblemText]: ...

    def __getitem__(self, position: int, /) -> ProblemText: ...


@dataclass(frozen=True, slots=True)
class DatasetTexts:
    """A dataset's texts, which stay where they are if the dataset is a training split."""

    name: str
    role: str
    texts: Texts


class StoredTexts:
    """A file in `data_manifests/texts/`. Memory holds a single text and the offsets of all."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begins = array("Q")

    def __iter__(self) -> Iterator[ProblemText]:
        """Yield the texts. Raises BadInputError if the file is damaged."""
        self._begins = array("Q")
        begin = 0
        with open_source(str(self._file), Path()) as stream:
            for number, line in enumerate(stream, 1):
                self._begins.append(begin)
                begin += len(line)
                yield self._parse_line(line, number)

    def __getitem__(self, position: int, /) -> ProblemText:
        """Return a text that was yielded. Raises BadInputError if the file is damaged."""
        with open_source(str(self._file), Path()) as stream:
            stream.seek(self._begins[position])
            return self._parse_line(stream.readline(), position + 1)

    def _parse_line(self, line: bytes, number: int) -> ProblemText:
        for row in rows_of_bytes(line, str(self._file)):
            parts = row.values.get("parts")
            known = {name: str(parts[name]) for name in PARTS if name in parts} if isinstance(parts, dict) else {}
            return ProblemText(row.name("problem_id"), row.texts("exact"), row.text("text"), known)
        raise BadInputError(f"{self._file}:{number}: is blank: prepare the data again")
