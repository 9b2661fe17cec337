"""The curve over a training's steps, from runs as they are left behind."""

import json
from pathlib import Path

import pytest
from builders.results.stored_runs import verdicts_of, write_run

from evalrun_cli.comparisons.history import drawn, history, is_name
from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.history import HistoryRun, Point, curves, read_step
from evalrun_runtime.exits import BadInputError


def checkpoint_run(directory: Path, step: int, accepted: int, **lineage: object) -> Path:
    spec = {"model": {"path": "s3://training/x"}, "lineage": {"schedule": "nightly", "step": step, **lineage}}
    results = verdicts_of([place < accepted for place in range(50)], dataset="mbpp_reg")
    return write_run(
        directory / f"nightly-{step}_{accepted}", results, spec=spec, created=f"2026-05-{step:02}T03:00:00Z"
    )


def test_a_directory_of_runs_is_a_curve_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, accepted in ((30, 30), (10, 20), (20, 25)):
        checkpoint_run(tmp_path, step, accepted)
    (tmp_path / "notes").mkdir()
    assert history([str(tmp_path)], metric="accepted_at_1", datasets=(), view="json", output=None) == 0
    found = json.loads(capsys.readouterr().out)
    (curve,) = found["curves"]
    assert (curve["schedule"], curve["dataset"]) == ("nightly", "mbpp_reg")
    assert [(point["step"], point["value"]) for point in curve["points"]] == [(10, 0.4), (20, 0.5), (30, 0.6)]
    assert all(point["low"] < point["value"] < point["high"] for point in curve["points"])


@pytest.mark.parametrize(
    ("view", "says"), [("text", "●"), ("markdown", "| 10 | 0.4 |"), ("html", "<title>step 10: 0.4, interval")]
)
def test_every_form_shows_the_figures_and_their_intervals(tmp_path: Path, view: str, says: str) -> None:
    checkpoint_run(tmp_path, 10, 20)
    checkpoint_run(tmp_path, 20, 25)
    output = tmp_path / "curve"
    history([str(tmp_path)], metric="accepted_at_1", datasets=["mbpp_reg"], view=view, output=output)
    text = output.read_text()
    assert says in text
    assert "nightly: mbpp_reg, accepted_at_1" in text


def test_runs_of_other_schedules_under_the_same_url_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint_run(tmp_path, 10, 20)
    checkpoint_run(tmp_path, 11, 20, schedule="other")
    history([str(tmp_path)], metric="accepted_at_1", datasets=(), view="json", output=None, schedules=["nightly"])
    found = json.loads(capsys.readouterr().out)
    assert [curve["schedule"] for curve in found["curves"]] == ["nightly"]


def test_a_step_is_the_lineages_else_the_directories() -> None:
    def info(path: str, **spec: object) -> dict[str, object]:
        return {"spec": {"model": {"path": path}, **spec}}

    assert read_step(info("s3://t/global_step_120/actor/huggingface")) == 120
    assert read_step(info("s3://t/checkpoint-500")) == 500
    assert read_step(info("s3://t/global_step_120", lineage={"step": 7})) == 7
    assert read_step(info("Qwen/Qwen2.5-Coder-7B-Instruct")) is None
    assert read_step({}) is None


def test_a_comparison_names_the_step() -> None:
    run_info = {"run": "nightly-a", "spec": {"model": {"path": "s3://t/x"}, "lineage": {"step": 120}}}
    assert RunFacts("out", {}, run_info, {}).label == "nightly-a · s3://t/x · step 120"


def test_a_rewritten_checkpoint_stays_two_points_and_a_run_without_step_is_named() -> None:
    summary = {"state": "Succeeded", "datasets": {"d": {"metrics": {"m": {"value": 0.5}}}}}
    spec = {"lineage": {"step": 3}}
    runs = [
        HistoryRun("later", summary, {"spec": spec, "created": "2026-05-02"}),
        HistoryRun("first", summary, {"spec": spec, "created": "2026-05-01"}),
        HistoryRun("nowhere", summary, {}),
    ]
    (curve,), stepless = curves(runs, "m")
    assert [point.place for point in curve.points] == ["first", "later"]
    assert stepless == ["nowhere"]


def test_directory_without_runs_or_steps_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="name a run's outputs, or a directory of runs"):
        history([str(tmp_path)], metric="accepted_at_1", datasets=(), view="text", output=None)
    write_run(tmp_path / "run", verdicts_of([True]), spec={"model": {"path": "hub/model"}})
    with pytest.raises(BadInputError, match=r"write spec.lineage.step"):
        history([str(tmp_path)], metric="accepted_at_1", datasets=(), view="text", output=None)


def test_an_interval_is_drawn_to_scale() -> None:
    point = Point(1, "", "", 0.5, 0.25, 0.75, 50, "")
    assert drawn(point, 0.0, 1.0, columns=9) == "  ──●──"
    assert drawn(point, 0.5, 0.5, columns=9) == "    ●"


def test_is_name_distinguishes_names_from_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    assert is_name("nightly")
    assert not any(map(is_name, ("outputs", "./nightly", "s3://bucket/x", "/tmp/x")))
