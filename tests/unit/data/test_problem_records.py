"""The record: canonical text, hashes, groups of tests, and the way to JSON and back."""

import hashlib
import json

import pytest
from builders.data import assert_problem, check_problem, stdio_problem

from evalrun_data.formats.record import make_problem_record, parse_record
from evalrun_data.records import Checker, Message, Problem, ProblemComparator, StdioTests, canonical_text
from evalrun_data.rows import Row
from evalrun_registry.limits import PartialLimits


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a\r\nb", "a\nb"),
        ("  a  \t b \n", "a b"),
        ("e\u0301", "\u00e9"),
        ("a\u00a0 b", "a b"),
        ("if x:\n    y\n\n\nz", "if x:\n y\n\n\nz"),
        ("", ""),
    ],
)
def test_canonical_text_normalizes_line_ends_blanks_and_unicode(text: str, canonical: str) -> None:
    assert canonical_text(text) == canonical
    assert canonical_text(canonical) == canonical


def test_the_prompt_is_kept_byte_for_byte_and_hashed_by_its_canonical_text() -> None:
    row = {**make_problem_record(stdio_problem()), "prompt": " Add\r\n  two "}
    problem = parse_record(Row(row, "x", 1), None)
    assert problem.prompt == " Add\r\n  two "
    assert problem.prompt_sha256 == hashlib.sha256(b"Add\n two").hexdigest()


def full_problem() -> Problem:
    return Problem(
        dataset="contest",
        problem_id="π",
        prompt="p\r\n",
        ground_truth=StdioTests(("1", "2"), ("a", "b"), ("public", "generated"), "import math\n"),
        split="test",
        data_source="codeforces",
        difficulty="HARD",
        sandbox_dataset="code_contests",
        sandbox_id="17",
        language="cpp",
        limits=PartialLimits(1.5, 64),
        comparator=ProblemComparator("checker", checker=Checker("testlib", "cpp", "int main() {}")),
        messages=(Message("system", "s"), Message("user", "p\r\n")),
    )


TOLERANT = ProblemComparator("tokens", case_sensitive=True, abs=0.0, rel=1e-9)


@pytest.mark.parametrize(
    "problem",
    [
        stdio_problem(),
        check_problem(),
        assert_problem(),
        full_problem(),
        Problem("d", "p", "", stdio_problem().ground_truth, data_source="d", comparator=TOLERANT),
        Problem(
            "d",
            "q",
            "",
            stdio_problem().ground_truth,
            data_source="d",
            comparator=ProblemComparator("tokens", by_format=True),
        ),
    ],
    ids=lambda problem: f"{problem.family} {problem.problem_id}",
)
def test_a_record_survives_json(problem: Problem) -> None:
    values = json.loads(json.dumps(make_problem_record(problem)))
    assert parse_record(Row(values, "x", 1), None) == problem
    assert {"dataset", "split", "problem_id", "prompt", "data_source", "ground_truth", "difficulty"} <= set(values)
    assert {"sandbox_dataset", "sandbox_id", "prompt_sha256"} <= set(values)


def test_groups_select_tests_in_order() -> None:
    tests = StdioTests(("1", "2", "3"), ("a", "b", "c"), ("public", "private", "generated"), "import math\n")
    kept = tests.select_groups({"public", "generated"})
    assert kept == StdioTests(("1", "3"), ("a", "c"), ("public", "generated"), "import math\n")
