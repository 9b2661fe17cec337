"""Checks a file of problems as a whole: every mistake is found, not the first alone; near misses are converted."""

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from evalrun_data.entry_points import compile_error
from evalrun_data.families.asserts import AssertTests
from evalrun_data.families.check import CheckTest
from evalrun_data.readers import Parser, choose_dataset_name, choose_parser
from evalrun_data.records import Problem, StdioTests
from evalrun_data.references import read_published_reference
from evalrun_data.rows import Row
from evalrun_data.sources import Source
from evalrun_runtime.exits import BadInputError

RECORD_FIELDS: Final = (
    "dataset", "problem_id", "prompt", "ground_truth", "split", "data_source", "difficulty", "sandbox_dataset",
    "sandbox_id", "language", "limits", "comparator", "messages", "role", "date", "tags", "licence", "license",
)  # fmt: skip
SILENT_FIELDS: Final = (
    "canonical_solution", "date", "difficulty", "language", "limits", "role", "split", "tags", "test_setup_code",
)  # fmt: skip
"""Fields of published rows that may be absent: a misspelt field would otherwise be lost silently."""
TEST_FIELDS: Final = ("test_list", "test_setup_code", "entry_point", "inputs", "outputs", "test")
"""Fields of tests that a row may hold at its top level, from which `ground_truth` is made."""
ALIASES: Final[Mapping[str, str]] = {
    "question": "prompt", "task": "prompt", "instruction": "prompt", "description": "prompt", "id": "problem_id",
    "task_id": "problem_id", "name": "problem_id", "tests": "test_list", "asserts": "test_list", "input": "inputs",
    "output": "outputs", "function_name": "entry_point",
}  # fmt: skip
"""Our fields by their common misspellings."""
EXAMPLE: Final = (
    '{"dataset": "ours", "problem_id": "add", "prompt": "Write add(a, b).", '
    '"ground_truth": {"test_list": ["assert add(1, 2) == 3"]}}'
)
NAMES_COLUMNS: Final = "or name the file's columns with --map THEIRS=OURS"
SIMILAR: Final = 0.8


@dataclass(frozen=True)
class CheckedProblem:
    """A problem that can be read."""

    problem: Problem
    row: int
    where: str
    """File and line."""
    reference: str | None
    """The program that its row publishes as a solution."""


@dataclass
class CheckedFile:
    """The findings about a file."""

    found: list[CheckedProblem] = field(default_factory=list)
    findings: list[tuple[float, str]] = field(default_factory=list)
    """Number of the row, between two rows for an unreadable row; and the mistake in one line, with file and line."""
    rows: int = 0
    mapped: Mapping[str, str] = field(default_factory=dict)
    """Columns that were read by another name: theirs -> ours."""

    @property
    def mistakes(self) -> list[str]:
        """The mistakes in the file's order."""
        return [text for _, text in sorted(self.findings, key=lambda each: each[0])]

    def add(self, row: float, *texts: str) -> None:
        """Add mistakes of the row with this number in the file, each as one line of text."""
        self.findings += [(row, text) for text in texts]

    @property
    def problems(self) -> list[Problem]:
        """The problems that can be used."""
        return [each.problem for each in self.found]


def check_file(source: str, renamed: Mapping[str, str], base_dir: Path = Path()) -> CheckedFile:
    """Check every row of a file.

    Args:
        source: of problems.
        renamed: maps the file's field names to ours.
        base_dir: where a relative path starts.
    """
    checked, seen = CheckedFile(), dict[tuple[str, str], str]()
    parser: Parser | None = None
    columns: frozenset[str] = frozenset()
    rows = _rows(source, base_dir, checked)
    for row in rows:
        checked.rows += 1
        try:
            converted = convert_row(row, renamed, checked)
            parser = parser or choose_parser(converted, source)
            problem = parser(converted, choose_dataset_name(converted, source))
        except BadInputError as error:
            if parser is None:
                checked.add(row.number, f"{error}. A right row: {EXAMPLE}; {NAMES_COLUMNS}")
                if checked.rows == 1:
                    break
            elif columns and columns.isdisjoint(row.values):
                checked.add(row.number, f"{error}: it has other columns than the rows before ({', '.join(row.values)})")
            else:
                checked.add(row.number, str(error))
            continue
        columns = columns or frozenset(row.values)
        reference = read_published_reference(converted, problem)
        checked.add(row.number, *find_mistakes(problem, converted, reference))
        if (first := seen.setdefault(problem.key, row.where)) != row.where:
            checked.add(row.number, f"{row.where}: problem '{problem.problem_id}' is there twice (first {first})")
            continue
        checked.found.append(CheckedProblem(problem, row.number, row.where, reference))
    return checked


def _rows(source: str, base_dir: Path, checked: CheckedFile) -> Iterator[Row]:
    """Yield the rows of a file up to the first unreadable row."""

    number = 0

    def record_broken(error: BadInputError) -> None:
        checked.rows += 1
        checked.add(number + 0.5, str(error))

    try:
        with Source(source, base_dir) as opened:
            for row in opened.rows(broken=record_broken):
                number = row.number
                yield row
    except BadInputError as error:
        checked.add(number + 0.5, str(error))


def convert_row(row: Row, renamed: Mapping[str, str], checked: CheckedFile) -> Row:
    """Return the row with our field names. A near miss becomes a record; other rows stay unchanged."""
    missing = [theirs for theirs in renamed if theirs not in row.values]
    if missing and not any(row.has(ours) for ours in renamed.values()):
        raise row.error(f"--map {missing[0]}: there is no such column (columns: {', '.join(row.values)})")
    names = {theirs: ours for theirs, ours in ALIASES.items() if theirs in row.values and ours not in row.values}
    near_miss = not row.has("ground_truth") and any(name in row.values for name in ("tests", "question", *renamed))
    if not near_miss or row.has("canonical_solution") or row.has("reward_model"):
        return row
    names |= renamed
    values = {names.get(name, name): value for name, value in row.values.items()}
    values["ground_truth"] = _convert_tests({name: values.pop(name) for name in TEST_FIELDS if name in values})
    values.setdefault("problem_id", str(row.number))
    checked.mapped = {**checked.mapped, **{theirs: ours for theirs, ours in names.items() if theirs in row.values}}
    return Row(values, row.source, row.number, row.unit, row.path)


def _convert_tests(tests: Mapping[str, object]) -> dict[str, object]:
    """Return tests in the form of a record: asserts in a text become a list, pairs become inputs and outputs."""
    given = dict(tests)
    listed = given.get("test_list")
    if isinstance(listed, str):
        given["test_list"] = [line for line in listed.splitlines() if line.strip()]
    elif isinstance(listed, list) and listed and all(isinstance(each, dict) for each in listed):
        del given["test_list"]
        for ours, theirs in (("inputs", ("input", "stdin")), ("outputs", ("output", "expected", "stdout"))):
            given[ours] = [next((each[name] for name in theirs if name in each), None) for each in listed]
    return given


def idle_program(problem: Problem) -> str | None:
    """Return a program that does nothing, which no tests should accept; None if the family of tests has no such
    program."""
    tests = problem.ground_truth
    if isinstance(tests, AssertTests | CheckTest) and tests.entry_point.isidentifier():
        return f"def {tests.entry_point}(*args, **kwargs):\n    pass\n"
    if not isinstance(tests, StdioTests):
        return None
    return "pass\n" if problem.language == "python" else "int main() { return 0; }\n"


def find_mistakes(problem: Problem, row: Row, reference: str | None) -> Iterator[str]:
    """Yield the mistakes in a readable problem, one line each.

    Args:
        problem: as it was read.
        row: that it was read from.
        reference: the program that the row publishes as a solution.
    """
    wanted = RECORD_FIELDS if row.has("ground_truth") else [name for name in SILENT_FIELDS if name not in row.values]
    for name in row.values:
        is_known = name in RECORD_FIELDS or name in SILENT_FIELDS
        similar = [] if is_known else difflib.get_close_matches(name, wanted, 1, SIMILAR)
        if similar:
            yield f"{row.where}: field '{name}' is not known: did you mean '{similar[0]}'?"
    tests = problem.ground_truth
    if problem.language != "python" or not isinstance(tests, AssertTests | CheckTest):
        return
    texts = tests.test_list if isinstance(tests, AssertTests) else (tests.test,)
    yield from _compile_errors(problem, row, texts)
    if isinstance(tests, CheckTest) and tests.entry_point.isidentifier():
        told = "\n".join((problem.prompt, tests.test, reference or ""))
        if not re.search(rf"\b{re.escape(tests.entry_point)}\b", told):
            yield (
                f"{row.where}: problem '{problem.problem_id}': the entry_point '{tests.entry_point}' stands neither in "
                "the prompt nor in the test: correct the name"
            )
    if isinstance(tests, AssertTests) and not any(_names(tests.entry_point, text) for text in texts):
        yield (
            f"{row.where}: problem '{problem.problem_id}': no assert calls the entry_point '{tests.entry_point}': "
            "correct the name, or leave entry_point away"
        )


def _compile_errors(problem: Problem, row: Row, texts: Sequence[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if said := compile_error(text):
            which = f"test {number}" if len(texts) > 1 else "the test"
            yield f"{row.where}: problem '{problem.problem_id}': {which} does not compile: {said}"


def _names(name: str, text: str) -> bool:
    try:
        return any(isinstance(node, ast.Name | ast.Attribute) and _read_name(node) == name for node in _nodes(text))
    except (SyntaxError, ValueError):
        return True


def _nodes(text: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(text))


def _read_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr
