"""A race over what `evalrun run --checkpoints` has left: whole runs decide, and are not run again."""

from pathlib import Path

import pytest
from builders.results.stored_runs import verdicts_of, write_run

from evalrun_cli.comparisons.views import run_facts
from evalrun_cli.local.live_race import FIRST_BLOCK, LiveRace
from evalrun_cli.local.run_series import SeriesRun
from evalrun_runtime.exits import BadInputError

PROBLEMS = 400


def write_series(directory: Path, solved: dict[str, int]) -> list[SeriesRun]:
    """Write a directory as `run --checkpoints` leaves it: of each checkpoint its EvalRun, what it said, its results."""
    runs = []
    for label, count in solved.items():
        if count:
            write_run(directory / label, verdicts_of([True] * count + [False] * (PROBLEMS - count)), run=label)
        (directory / f"{label}.yaml").write_text("kind: EvalRun\n")
        (directory / f"{label}.log").write_text("")
        runs.append(SeriesRun(label, directory / f"{label}.yaml", directory / label))
    return runs


def dataset_of(run: SeriesRun) -> str:
    (name,) = run_facts(str(run.output)).totals
    return name


def test_complete_runs_decide_a_race_without_another_run(tmp_path: Path) -> None:
    runs = write_series(tmp_path, {"global_step_10": 100, "global_step_20": 380, "global_step_30": 40})
    race = LiveRace(runs, dataset_of(runs[0]), "benchmark")
    assert race.racing == {"global_step_20"}
    assert race.choose(()) is None
    assert race.standing is not None
    assert race.standing.as_json()["best"] == [str(tmp_path / "global_step_20")]


def test_undecided_race_ends_with_the_possible_best_runs(tmp_path: Path) -> None:
    runs = write_series(tmp_path, {"global_step_10": 380, "global_step_20": 380, "global_step_30": 40})
    race = LiveRace(runs, dataset_of(runs[0]), "benchmark")
    assert race.racing == {"global_step_10", "global_step_20"}
    assert race.choose(()) is None, "there are no more problems to draw"


def test_stopped_series_continues_with_the_checkpoint_without_results(tmp_path: Path) -> None:
    runs = write_series(tmp_path, {"global_step_10": 380, "global_step_20": 100, "global_step_30": 0})
    race = LiveRace(runs, dataset_of(runs[0]), "benchmark")
    assert race.standing is None
    chosen = race.choose(())
    assert chosen is not None
    assert (chosen[0].label, chosen[1]) == ("global_step_30", ["--race-problems", str(FIRST_BLOCK)])
    assert race.choose({"global_step_30"}) is None, "those that are whole wait for it"


def test_a_series_of_another_dataset_is_refused(tmp_path: Path) -> None:
    runs = write_series(tmp_path, {"global_step_10": 380, "global_step_20": 100})
    with pytest.raises(BadInputError, match="has results of another race"):
        LiveRace(runs, "mbpp", "benchmark")
