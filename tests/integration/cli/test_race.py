"""`evalrun race` as a user types it."""

import json
from pathlib import Path

import pytest
from builders.command_line import Command
from builders.data import data_file
from builders.results.stored_runs import verdicts_of, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, solved in (("first", 60), ("best", 95), ("twin", 95)):
        write_run(tmp_path / name, verdicts_of([True] * solved + [False] * (100 - solved)), run=name)
    write_run(tmp_path / "other", verdicts_of([True], dataset="mbpp_reg"))
    return tmp_path


def test_race_result_names_best_run_and_share_of_problems_needed(evalrun_here: Command, runs: Path) -> None:
    done = evalrun_here("race", runs / "first", runs / "best")
    assert done.returncode == 0, done.stderr
    assert f"{runs / 'best'} is best" in done.stdout
    found = json.loads(evalrun_here("race", runs / "first", runs / "best", "--json").stdout)
    assert found["best"] == [str(runs / "best")]
    assert 0 < found["needed"] < 1


def test_race_without_a_winner_ends_with_code_5_and_the_reason(evalrun_here: Command, runs: Path) -> None:
    done = evalrun_here("race", runs / "first", runs / "best", runs / "twin", "--population", "similar")
    assert done.returncode == 5, done.stderr
    assert "cannot tell which of the 2 runs is best" in done.stdout


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("first",), "is one run: name at least two"),
        (("first", "first"), "named twice"),
        (("first", "other"), "the runs share no dataset"),
        (("first", "best", "--dataset", "mbpp"), "has no results of dataset mbpp"),
    ],
)
def test_unraceable_runs_are_refused(evalrun_here: Command, runs: Path, names: tuple[str, ...], said: str) -> None:
    arguments = [runs / name if (runs / name).is_dir() else name for name in names]
    done = evalrun_here("race", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_race_of_recorded_models_names_the_one_with_the_best_record(evalrun_here: Command, tmp_path: Path) -> None:
    problems, places = data_file("humaneval/HumanEval.jsonl.gz"), []
    # gpt-4's answers passed 134 of 164 problems where they were made, qwen's 120 and codellama's 47.
    for model in ("ollama-codellama_7b", "gpt-4_simple_a", "ollama-qwen2.5-coder_7b"):
        answers = data_file(f"completions/humaneval_{model}.jsonl.gz")
        places.append(tmp_path / model)
        judged = evalrun_here("judge", "--problems", problems, "--responses", answers, "--output", places[-1])
        assert judged.returncode == 0, judged.stderr
    raced = evalrun_here("race", *places, "--json")
    assert raced.returncode == 0, raced.stderr
    found = json.loads(raced.stdout)
    assert found["best"] == [str(tmp_path / "gpt-4_simple_a")]
    assert found["needed"] < 0.6
