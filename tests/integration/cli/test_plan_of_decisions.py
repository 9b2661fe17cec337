"""`evalrun plan --gate` and `--race` as a user types them."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from builders.command_line import Command
from builders.results.stored_runs import samples_of, verdicts_of, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    for name in ("main", "pilot"):
        answers = samples_of((4, int(rng.binomial(4, share))) for share in rng.random(60))
        write_run(tmp_path / name, answers, run=name, gpu_seconds=720.0)
    write_run(tmp_path / "other", verdicts_of([True], dataset="mbpp_reg"))
    return tmp_path


def test_gate_plan_for_fewer_points_needs_more_answers_and_gives_gpu_hours(evalrun_here: Command, runs: Path) -> None:
    asked = ("plan", "--gate", runs / "main", runs / "pilot", "--points", "5,10")
    done = evalrun_here(*asked)
    assert done.returncode == 0, done.stderr
    assert "estimated from 60 problems of humaneval" in done.stdout
    rows = json.loads(evalrun_here(*asked, "--format", "json").stdout)["rows"]
    assert [(row["points"], row["what"].partition(" a")[0]) for row in rows] == [
        (points, samples) for points in (5, 10) for samples in ("1", "4", "16")
    ]
    first = rows[0]
    assert first["answers"] > rows[3]["answers"]
    used = min(each for each in (first["answers"], first["sooner"]) if each)
    assert first["gpu_hours"] == pytest.approx(used * 720 / 3600 / 240)  # the pilot has 240 answers


def test_a_race_of_ten_is_planned_from_two_runs_and_drawn(evalrun_here: Command, runs: Path) -> None:
    asked = ("plan", "--race", runs / "main", runs / "pilot", "--runners", "10", "--points", "10")
    done = evalrun_here(*asked)
    assert done.returncode == 0, done.stderr
    assert "10 runs that solve" in done.stdout
    file = runs / "race.svg"
    assert evalrun_here(*asked, "--format", "svg", "--output", file).returncode == 0
    drawing = ElementTree.fromstring(file.read_text())
    assert len([each for each in drawing if each.get("class") == "bar"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gate", "main"), "plan --gate: name two runs"),
        (("--race", "main", "other"), "the runs share no dataset"),
        (("--gate", "main", "pilot", "--dataset", "mbpp"), "has no results of dataset mbpp"),
        (("main", "pilot"), "name one file with EvalRuns, or --gate or --race before runs"),
        (("--gate", "--race", "main", "pilot"), "only one of them"),
    ],
)
def test_plan_of_unusable_runs_or_options_is_refused(
    evalrun_here: Command, runs: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = evalrun_here("plan", *(runs / each if (runs / each).is_dir() else each for each in arguments))
    assert done.returncode == 2
    assert said in done.stderr
