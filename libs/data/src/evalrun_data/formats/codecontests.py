"""CodeContests: the hub's rows (`public_tests`, ...), CodeContests+ with its checkers, rows of `statement` and `tests`.

The published time limits are not taken over: they were set for the original judges' machines, mostly for C++. The
dataset's limits decide; a record of our own may carry limits.
"""

from dataclasses import replace
from typing import Final

from evalrun_data.formats.record import parse_licence, parse_tags
from evalrun_data.records import TEST_GROUPS, Checker, Problem, ProblemComparator, StdioTests, TestGroup
from evalrun_data.rows import Row

# The enums of the published schema, by number.
_DIFFICULTIES: Final = ("", "EASY", "MEDIUM", "HARD", "HARDER", "HARDEST", "EXTERNAL", *"ABCDEFGHIJKLMNOPQRSTUV")
_SOURCES: Final = ("", "CODECHEF", "CODEFORCES", "HACKEREARTH", "CODEJAM", "ATCODER", "AIZU")

AUTHORS_OWN: Final = ProblemComparator("standard", case_sensitive=False, by_format=True)
"""CodeContests compares without case. AtCoder's judge does not: there `Yes` is not `YES`."""


def parse_codecontests(row: Row, dataset: str | None) -> Problem:
    """Parse a row as the hub has it: `name`, `description` and the tests by group."""
    columns = tuple(f"{group}_tests" for group in TEST_GROUPS)
    row.refuse_unused_tests("CodeContests", *columns, "input_file", "output_file")
    inputs: list[str] = []
    outputs: list[str] = []
    groups: list[TestGroup] = []
    for group in TEST_GROUPS:
        for given, wanted in _pairs(row, f"{group}_tests"):
            inputs.append(given)
            outputs.append(wanted)
            groups.append(group)
    return _problem(row, dataset, row.text("description"), StdioTests(tuple(inputs), tuple(outputs), tuple(groups)))


def is_codecontests_plus(row: Row) -> bool:
    """Return whether a row is from CodeContests+: it has `checker`, and tests or a generator of tests."""
    return row.has("description") and "checker" in row.values and (row.has("test_cases") or row.has("validator"))


def parse_codecontests_plus(row: Row, dataset: str | None) -> Problem:
    """Parse a row of CodeContests+. Its checker decides; a row without a checker compares outputs as CodeContests does.

    The checkers include `testlib.h`, which the sandbox must have.
    """
    row.refuse_unused_tests("CodeContests+", "test_cases")
    if not row.has("test_cases"):
        raise row.error("has no field 'test_cases': the subset default has no tests: take one of the subsets 1x to 5x")
    pairs = _pairs(row, "test_cases")
    tests = StdioTests(tuple(given for given, _ in pairs), tuple(wanted for _, wanted in pairs))
    problem = _problem(row, dataset or "codecontests_plus", row.text("description"), tests)
    source = row.optional_text("checker")
    if not source.strip():
        return problem
    return replace(problem, comparator=ProblemComparator("checker", checker=Checker("testlib", "cpp", source)))


def parse_statement_and_tests(row: Row, dataset: str | None) -> Problem:
    """Parse a row with `name` (or `id`), `statement` and `tests`, a list of `{"input", "output"}`; groups are not
    known."""
    row.refuse_unused_tests("statement and tests", "tests")
    pairs = _pairs(row, "tests")
    tests = StdioTests(tuple(given for given, _ in pairs), tuple(wanted for _, wanted in pairs))
    return _problem(row, dataset, row.text("statement"), tests)


def _problem(row: Row, dataset: str | None, prompt: str, tests: StdioTests) -> Problem:
    if not tests.count:
        raise row.error("has no tests: a problem needs at least one")
    source = _enum(row, "source", _SOURCES)
    return Problem(
        dataset=dataset or "codecontests",
        problem_id=row.name("name" if row.has("name") or not row.has("id") else "id"),
        prompt=prompt,
        ground_truth=tests,
        split=row.optional_text("split"),
        data_source=source or "codecontests",
        difficulty=_enum(row, "difficulty", _DIFFICULTIES),
        comparator=None if source.upper() == "ATCODER" else AUTHORS_OWN,
        tags=parse_tags(row, "cf_tags") or parse_tags(row, "tags"),
        licence=parse_licence(row),
    )


def _pairs(row: Row, field: str) -> list[tuple[str, str]]:
    """Tests as the hub stores them (`{"input": [...], "output": [...]}`) or as a list of `{"input", "output"}`."""
    if not row.has(field):
        if field == "tests":
            raise row.wrong(field, "a list of tests")
        return []
    value = row.values[field]
    if isinstance(value, dict):
        columns = row.make_inner_row(field, value)
        inputs, outputs = columns.texts("input"), columns.texts("output")
        if len(inputs) != len(outputs):
            raise row.error(f"field '{field}' has {len(inputs)} inputs but {len(outputs)} outputs")
        return list(zip(inputs, outputs, strict=True))
    if not isinstance(value, list):
        raise row.wrong(field, "a list of tests")
    pairs = []
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise row.error(f"field '{field}[{index}]' should be an object with input and output")
        test = row.make_inner_row(f"{field}[{index}]", item)
        pairs.append((test.text("input"), test.text("output")))
    return pairs


def _enum(row: Row, field: str, names: tuple[str, ...]) -> str:
    value = row.values.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else str(value)
    return row.optional_text(field)
