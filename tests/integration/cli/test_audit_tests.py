"""`evalrun data audit-tests` on a run as its command leaves it."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.governance import write_rows
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_cli.__main__ import main
from evalrun_data.readers import load_problems

VERDICTS = {
    ("strong", 0): (["success", "success"], True),
    ("strong", 1): (["wrong_answer", "success"], False),
    ("weak", 0): (["success", "success"], True),
    ("weak", 1): (["success", "success"], False),
    ("picky", 0): (["success", "wrong_answer"], True),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [sample_result(name, n, tests) for (name, n), (tests, _) in VERDICTS.items()])


def evalrun(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(str(ended.value.code))


def audit(run: Path, labels: list[dict[str, Any]], *more: str) -> int:
    file = write_rows(run.parent / "labels.jsonl", labels)
    return evalrun("data", "audit-tests", run, "--labels", file, *more)


def test_audit_names_the_faults_of_each_suite(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = [{"problem_id": name, "correct": correct} for (name, _), (_, correct) in VERDICTS.items()]
    assert audit(run, labels, "--output", str(run.parent / "suites.json")) == 1
    said = capsys.readouterr().out
    assert "3 problems: 2 of 3 correct programs accepted, 1 of 2 wrong ones rejected; 10 program runs" in said
    assert "accepts wrong programs: 1 problems\n  humaneval/weak: 1 of 1" in said
    assert "rejects correct programs: 1 problems\n  humaneval/picky: 1 of 1 (1 for their output alone: needs a" in said
    assert "humaneval/strong: 1 of 2 tests" in said
    problems = {each["problem_id"]: each for each in json.loads((run.parent / "suites.json").read_text())["problems"]}
    assert problems["strong"]["idle_tests"] == [1]
    assert problems["weak"]["true_negative_rate"]["value"] == 0.0
    assert 'leave these out of a run: {name: humaneval, excludeProblems: ["weak", "picky"]}' in said
    assert json.loads((run.parent / "suites.json").read_text())["exclude"] == {"humaneval": ["weak", "picky"]}
    assert audit(run, labels[:2]) == 0, "the strong suite has no fault"


def test_passing_mutants_are_listed_without_failing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels: list[dict[str, Any]] = [
        {"problem_id": "weak", "correct": True},
        {"problem_id": "weak", "mutant": "line 2: + became -"},
    ]
    assert audit(run, labels) == 0
    said = capsys.readouterr().out
    assert "0 of 1 mutants" in said
    assert "equivalent to the reference: 1 problems\n  humaneval/weak: 1 of 1, e.g. line 2: + became -" in said


def test_the_verdicts_of_a_stronger_suite_serve_as_labels(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trusted = [
        sample_result(name, n, ["success" if correct else "wrong_answer"])
        for (name, n), (_, correct) in VERDICTS.items()
    ]
    stronger = write_run(tmp_path / "stronger", trusted)
    assert evalrun("data", "audit-tests", run, "--stronger", stronger) == 1
    assert "accepts wrong programs: 1 problems\n  humaneval/weak: 1 of 1" in capsys.readouterr().out
    other = write_run(tmp_path / "other", [sample_result("another", 0, ["success"])])
    assert evalrun("data", "audit-tests", run, "--stronger", other) == 2
    assert "has no judged program of the run" in capsys.readouterr().err
    assert evalrun("data", "audit-tests", run) == 2


CHANGED = {
    ("weak", 0): True,
    ("weak", 1): "line 2: + became -",
    ("strong", 0): True,
    ("strong", 1): "line 1: 0 became 1",
}
MUTANTS = [
    {"problem_id": name, "sample": sample, **({"correct": True} if change is True else {"mutant": change})}
    for (name, sample), change in CHANGED.items()
]


@pytest.mark.parametrize(
    ("reference", "mutant", "code", "says"),
    [
        (
            "success",
            "wrong_answer",
            1,
            "accepts wrong programs: 1 problems\n  humaneval/weak: 1 of 1, e.g. line 2: + became",
        ),
        ("success", "success", 0, "accepts 1 mutants that do not differ on varied arguments: equivalent as far as"),
        (
            "wrong_answer",
            "wrong_answer",
            0,
            "equivalent to the reference: 1 problems\n  humaneval/weak: 1 of 1, e.g. line 2",
        ),
    ],
)
def test_varied_tests_tell_wrong_mutants_from_equivalent_ones(
    run: Path, reference: str, mutant: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = {("weak", 0): reference, ("weak", 1): mutant, ("strong", 0): "success", ("strong", 1): "wrong_answer"}
    varied = write_run(run.parent / "varied", [sample_result(*key, [status]) for key, status in judged.items()])
    assert audit(run, MUTANTS, "--varied", str(varied), "--output", str(run.parent / "suites.json")) == code
    said = capsys.readouterr().out
    assert says in said
    problems = {each["problem_id"]: each for each in json.loads((run.parent / "suites.json").read_text())["problems"]}
    assert problems["weak"]["wrong_mutants"] == (["line 2: + became -"] if code else [])
    assert problems["strong"]["true_negative_rate"]["value"] == 1.0, "rejected by both: a wrong program"
    unsettled = "varied tests that reject a correct program, or that judged none: 1 problems\n  humaneval/weak"
    assert (unsettled in said) == (reference != "success")


def test_varied_tests_need_labels(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evalrun("data", "audit-tests", run, "--stronger", run, "--varied", run) == 2
    assert "--varied: needs --labels" in capsys.readouterr().err


TASK = {
    "task_id": "HumanEval/0",
    "prompt": "def most(xs, least=0):\n",
    "entry_point": "most",
    "canonical_solution": "    for x in xs:\n        if x > least:\n            least = x\n    return least\n",
    "test": "def check(candidate):\n    assert candidate([1, 3, 2]) == 3\n",
}


def test_published_references_are_mutated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems, output = write_rows(tmp_path / "HumanEval.jsonl", [TASK]), tmp_path / "mutants.jsonl"
    assert evalrun("data", "mutants", problems, "--output", output) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert f"1 references with {len(rows) - 1} mutants" in capsys.readouterr().out
    assert [row.get("correct") for row in rows] == [True] + [None] * (len(rows) - 1)
    assert "line 3: x > least became x >= least" in [row.get("mutant") for row in rows]
    assert {row["mode"] for row in rows} == {"standalone"}
    assert evalrun("data", "mutants", problems, "--output", output, "--max-mutants", "2") == 0
    assert len(output.read_text().splitlines()) == 3


def test_published_references_make_varied_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems, output = write_rows(tmp_path / "HumanEval.jsonl", [TASK]), tmp_path / "varied.jsonl"
    assert evalrun("data", "vary-tests", problems, "--output", output) == 0
    assert f"1 problems with varied tests: {output}" in capsys.readouterr().out
    (problem,) = load_problems(str(output))
    assert problem.key == ("humaneval", "HumanEval/0")
    assert "assert candidate([1, 3, 2]) == 3" in str(problem.ground_truth)
    row = {"dataset": "sums", "problem_id": "a", "prompt": "", "ground_truth": {"inputs": ["1"], "outputs": ["2"]}}
    sums = write_rows(tmp_path / "sums.jsonl", [row])
    mine = write_rows(tmp_path / "mine.jsonl", [{"problem_id": "a", "response": "print(2)"}])
    assert evalrun("data", "vary-tests", sums, "--references", mine, "--output", output) == 2
    assert "no tests call a Python function: only those can be varied" in capsys.readouterr().err
    assert load_problems(str(output)) == [problem], "nothing is written then"


def test_given_references_are_mutated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems = write_rows(
        tmp_path / "problems.jsonl",
        [
            {
                "dataset": "sums",
                "problem_id": name,
                "prompt": "Add.",
                "ground_truth": {"inputs": ["1"], "outputs": ["2"]},
            }
            for name in ("a", "b")
        ],
    )
    mine = write_rows(tmp_path / "mine.jsonl", [{"problem_id": "a", "response": "print(int(input()) + 1)"}])
    output = tmp_path / "mutants.jsonl"
    assert evalrun("data", "mutants", problems, "--references", mine, "--output", output) == 0
    assert {json.loads(line)["problem_id"] for line in output.read_text().splitlines()} == {"a"}
    assert evalrun("data", "mutants", problems, "--output", output) == 2
    assert "problems.jsonl:1: publishes no solution" in capsys.readouterr().err
    write_rows(mine, [{"problem_id": "a", "response": "int main() {}"}])
    assert evalrun("data", "mutants", problems, "--references", mine, "--output", output) == 2
    assert "problem 'a' of dataset 'sums' is not a Python program" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"problem_id": "none", "correct": True}, "the run has no problem 'none'"),
        ({"problem_id": "weak", "sample": 7, "correct": True}, "the run has no sample 7 of problem 'weak'"),
        ({"problem_id": "weak"}, "field 'correct' is missing (expected true or false; mutant serves too)"),
        ({"problem_id": "weak", "correct": "yes"}, "field 'correct' should be true or false, not text"),
    ],
)
def test_a_bad_label_is_named(run: Path, row: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(run, [row]) == 2
    assert f"labels.jsonl:1: {says}" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["print(int(input()) + 1)", "int main() {}"])
def test_references_file_that_is_also_the_output_loses_no_reference(tmp_path: Path, code: str) -> None:
    truth = {"inputs": ["1"], "outputs": ["2"]}
    row = {"dataset": "sums", "problem_id": "a", "prompt": "Add.", "ground_truth": truth}
    problems = write_rows(tmp_path / "problems.jsonl", [row])
    mine = write_rows(tmp_path / "mine.jsonl", [{"problem_id": "a", "response": code}])
    before = mine.read_text()
    done = evalrun("data", "mutants", problems, "--references", mine, "--output", mine)
    if done == 0:
        assert json.loads(mine.read_text().splitlines()[0])["response"] == code
    else:
        assert mine.read_text() == before
    assert done == (2 if "main" in code else 0)


def test_a_report_cannot_be_written_to_a_directory(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evalrun("report", run, "--output", ".") == 2
    assert "cannot be written: Is a directory" in capsys.readouterr().err
