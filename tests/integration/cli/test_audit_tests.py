"""`evalrun data audit-tests` on a run as its command leaves it."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.governance import write_rows
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_cli.__main__ import main

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


def audit(run: Path, labels: list[dict[str, Any]], *more: str) -> int:
    file = write_rows(run.parent / "labels.jsonl", labels)
    with pytest.raises(SystemExit) as ended:
        main(["data", "audit-tests", str(run), "--labels", str(file), *more])
    return int(str(ended.value.code))


def test_the_faults_of_each_suite_are_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert audit(run, labels[:2]) == 0, "the strong suite has no fault"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"problem_id": "none", "correct": True}, "the run has no problem 'none'"),
        ({"problem_id": "weak", "sample": 7, "correct": True}, "the run has no sample 7 of problem 'weak'"),
        ({"problem_id": "weak"}, "field 'correct' is missing (expected true or false)"),
        ({"problem_id": "weak", "correct": "yes"}, "field 'correct' should be true or false, not text"),
    ],
)
def test_a_bad_label_is_named(run: Path, row: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(run, [row]) == 2
    assert f"labels.jsonl:1: {says}" in capsys.readouterr().err
