"""Problems and files for tests: small ones made here, and the real data where this machine has it."""

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from evalrun_data.readers import load_problems
from evalrun_data.records import (
    AssertTests,
    CheckTest,
    Problem,
    ProblemComparator,
    StdioTests,
)
from evalrun_registry.limits import PartialLimits

PROJECT_ROOT = Path(__file__).resolve().parents[2]


ALL_DATA = os.environ.get("EVALRUN_TEST_ALL_DATA") == "1"
"""Judge all of the real data (minutes: `make test-all-data`) and not only a sample."""


def data_file(relative: str) -> Path:
    """A file of the real data; skips the test where it is absent."""
    directory = Path(os.environ.get("EVALRUN_TEST_DATA", PROJECT_ROOT.parent / "shared" / "data"))
    path = directory / relative
    if not path.exists():
        pytest.skip(f"real data is not here: {path} (set EVALRUN_TEST_DATA)")
    return path


def json_rows(path: Path) -> list[dict[str, object]]:
    """The rows of a .jsonl.gz file, read without the reader under test."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def humaneval_with_solutions() -> list[tuple[Problem, str]]:
    """HumanEval's 164 problems, each with its canonical solution (run it after the prompt)."""
    path = data_file("humaneval/HumanEval.jsonl.gz")
    solutions = [str(row["canonical_solution"]) for row in json_rows(path)]
    return list(zip(load_problems(str(path)), solutions, strict=True))


def mbpp_with_solutions(dataset: str = "mbpp_reg") -> list[tuple[Problem, str]]:
    """MBPP's problems (`mbpp_reg`: ids 11-210), each with its reference code (a whole program)."""
    path = data_file("mbpp/mbpp.jsonl.gz")
    codes = {f"MBPP/{row['task_id']}": str(row["code"]) for row in json_rows(path)}
    return [(problem, codes[problem.problem_id]) for problem in load_problems(str(path), dataset)]


def contests_with_submissions() -> list[tuple[Problem, list[dict[str, str]]]]:
    """The contest set with its limits and tolerances, each problem with its filed programs.

    A submission has `expected`, `name`, `lang` (python, c, cpp) and `code`.
    """
    path = data_file("contests/problems.jsonl.gz")
    found = []
    for row in json_rows(path):
        tests, submissions = row["tests"], row["submissions"]
        assert isinstance(tests, list)
        assert isinstance(submissions, list)
        problem = Problem(
            dataset="contests",
            problem_id=str(row["id"]),
            prompt=str(row["statement"]),
            ground_truth=StdioTests(tuple(t["input"] for t in tests), tuple(t["output"] for t in tests)),
            limits=PartialLimits(time_seconds=float(str(row["our_tl"]))),
            comparator=_tolerance(str(row["validator_flags"])),
        )
        found.append((problem, submissions))
    return found


def _tolerance(flags: str) -> ProblemComparator:
    """Kattis validator flags as our comparator: without a tolerance, tokens must be equal but for their case."""
    names = {"float_tolerance": ("abs", "rel"), "float_absolute_tolerance": ("abs",)}
    words = flags.split()
    values = {field: float(words[1]) for field in names[words[0]]} if words else {}
    return ProblemComparator("tokens", case_sensitive=False, abs=values.get("abs"), rel=values.get("rel"))


def stdio_problem(problem_id: str = "sum", dataset: str = "contest", tests: int = 2) -> Problem:
    """Add two numbers that stand on one line; test i is (i, i) -> 2i."""
    numbers = range(tests)
    return Problem(
        dataset=dataset,
        problem_id=problem_id,
        prompt="Add two numbers.",
        ground_truth=StdioTests(tuple(f"{i} {i}\n" for i in numbers), tuple(f"{2 * i}\n" for i in numbers)),
        data_source=dataset,
    )


def check_problem(problem_id: str = "HumanEval/900", dataset: str = "humaneval") -> Problem:
    """`add(a, b)` in HumanEval's form."""
    prompt = 'def add(a: int, b: int) -> int:\n    """The sum."""\n'
    test = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-1, 1) == 0\n"
    return Problem(dataset, problem_id, prompt, CheckTest(prompt, test, "add"), data_source=dataset)


def assert_problem(problem_id: str = "MBPP/900", dataset: str = "mbpp") -> Problem:
    """`add(a, b)` in MBPP's form."""
    asserts = ("assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add(0, 0) == 0")
    truth = AssertTests(asserts, "", "add")
    return Problem(dataset, problem_id, "Write a function add that adds two numbers.", truth, data_source=dataset)


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """Writes JSONL, gzipped where the name ends in .gz."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
