"""The exporters with the real packages: WandB offline and without a server, MLflow with a store of files."""

import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from builders.results.exports import wandb_records
from builders.results.wandb_server import wandb_server

from evalrun_results.exports.content import CurvePoint, ExportContent
from evalrun_results.exports.exporter import ExportError, MlflowTarget, WandbTarget
from evalrun_results.exports.process import export_apart

CONTENT = ExportContent(
    id="abc123",
    run="nightly",
    namespace="evals",
    info={"run": "nightly", "spec": {"model": {"path": "some/model"}, "protocol": {"samples": 1}}},
    metrics={"eval/humaneval/accepted_at_1": 0.872, "eval/humaneval/coverage": 1.0},
    qa=[
        {"dataset": "humaneval", "problem_id": "HumanEval/0", "sample": 0, "pass_ratio": None, "accepted": None},
        {"dataset": "humaneval", "problem_id": "HumanEval/1", "sample": 0, "pass_ratio": 1.0, "accepted": True,
         "ground_truth": {"test": "…"}},
    ],
)  # fmt: skip


def at_step(step: int, accepted: float) -> ExportContent:
    point = CurvePoint(id="cafe1234", schedule="grpo.a", step=step, phase="rl", model=f"s3://t/global_step_{step}")
    metrics = {**CONTENT.metrics, "eval/humaneval/accepted_at_1": accepted}
    return CONTENT.model_copy(update={"id": f"run{step}", "run": f"grpo-{step}", "point": point, "metrics": metrics})


def wandb_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("wandb/offline-run-*/run-*.wandb"))


def test_wandb_offline_writes_keys_config_and_table_beside_the_outputs_only_once(tmp_path: Path) -> None:
    target = WandbTarget(project="evals", entity="team", mode="offline")
    earlier = tmp_path / "wandb" / "offline-run-20260101_000000-abc123"  # of an export before a restart
    other = tmp_path / "wandb" / "offline-run-20260101_000000-other"
    for directory in (earlier, other):
        directory.mkdir(parents=True)
    done = export_apart(target, CONTENT, tmp_path, scratch_in=None, seconds=150)
    assert (earlier.exists(), other.exists()) == (False, True)
    (written,) = wandb_files(tmp_path)
    assert (done.url, done.files) == ("", f"wandb/{written.parent.name}")
    records = list(wandb_records(written))
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.project, run.entity, run.display_name, run.run_group) == (
        "abc123", "evals", "team", "nightly", "evals",
    )  # fmt: skip
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert config["spec"] == {"model": {"path": "some/model"}, "protocol": {"samples": 1}}
    logged: dict[str, Any] = {}
    for record in records:
        logged |= {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
    assert json.loads(logged["eval/humaneval/accepted_at_1"]) == 0.872
    assert json.loads(logged["eval/humaneval/coverage"]) == 1
    table = json.loads((written.parent / "files" / json.loads(logged["qa_logs/path"])).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["problem_id"], row["accepted"], row["pass_ratio"]) for row in rows] == [
        ("HumanEval/0", None, None), ("HumanEval/1", True, 1.0),
    ]  # fmt: skip
    assert json.loads(rows[1]["ground_truth"]) == {"test": "…"}
    assert [path for path in tmp_path.rglob("*") if path.is_symlink()] == []  # copied whole


def test_wandb_offline_runs_of_a_schedule_are_on_one_curve_in_any_order_of_steps(tmp_path: Path) -> None:
    target = WandbTarget(project="evals", mode="offline")
    rows = []
    for step, accepted in ((130, 0.6), (120, 0.5)):  # the later one first, as a checkpoint that was rewritten
        directory = tmp_path / str(step)
        directory.mkdir()
        done = export_apart(target, at_step(step, accepted), directory, scratch_in=None, seconds=150)
        assert done.files.endswith(f"run{step}")
        (written,) = directory.glob("wandb/offline-run-*-cafe1234/run-*.wandb")
        records = list(wandb_records(written))
        (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        assert (run.run_id, run.display_name, run.job_type) == ("cafe1234", "grpo.a", "curve")
        axes = {(record.metric.name or record.metric.glob_name, record.metric.step_metric) for record in records}
        assert {("checkpoint_step", ""), ("eval/*", "checkpoint_step")} <= axes
        logged = {item.key or "/".join(item.nested_key): item.value_json
                  for record in records for item in record.history.item}  # fmt: skip
        rows.append((json.loads(logged["checkpoint_step"]), json.loads(logged["eval/humaneval/accepted_at_1"])))
    assert rows == [(130, 0.6), (120, 0.5)]


def test_wandb_online_adds_each_run_to_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
        monkeypatch.setenv("WANDB_BASE_URL", server.address)
        target = WandbTarget(project="evals", entity="team")
        urls = [
            export_apart(target, at_step(step, accepted), tmp_path, scratch_in=None, seconds=150).url
            for step, accepted in ((130, 0.6), (120, 0.5))
        ]
    assert urls == [f"{server.address}/team/evals/runs/run{step}" for step in (130, 120)]
    assert set(server.runs) == {"run130", "run120", "cafe1234"}
    assert server.opened == [False, False, False, True]  # the curve is there at the second
    curve = [(row["_step"], row["checkpoint_step"], row["eval/humaneval/accepted_at_1"])
             for row in server.history["cafe1234"]]  # fmt: skip
    assert curve == [(0, 130, 0.6), (1, 120, 0.5)]


def test_wandb_online_continues_an_existing_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "0123456789" * 4
    with wandb_server() as server:
        server.runs[CONTENT.id] = {"displayName": "nightly"}  # of an export before a restart
        monkeypatch.setenv("WANDB_API_KEY", key)
        monkeypatch.setenv("WANDB_BASE_URL", server.address)
        target = WandbTarget(project="evals", entity="team")
        done = export_apart(target, CONTENT, tmp_path, scratch_in=None, seconds=150)
    assert done.url == f"{server.address}/team/evals/runs/abc123"
    assert server.unknown == []
    assert (server.opened, set(server.runs), server.finished) == ([True], {"abc123"}, {"abc123"})
    assert server.keys == {f"Basic {b64encode(f'api:{key}'.encode()).decode()}"}
    assert json.loads(server.runs["abc123"]["config"])["spec"]["value"] == CONTENT.info["spec"]
    (row,) = server.history["abc123"]
    assert (row["eval/humaneval/accepted_at_1"], row["eval/humaneval/coverage"]) == (0.872, 1)
    assert row["qa_logs"]["nrows"] == 2
    summary = json.loads(server.uploads["wandb-summary.json"])
    assert summary["eval/humaneval/accepted_at_1"] == 0.872
    assert list(tmp_path.iterdir()) == []


def test_export_without_its_server_ends_at_its_limit_and_reveals_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "0123456789" * 4
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # discard: nobody answers there
    began = time.monotonic()
    with pytest.raises(ExportError) as failed:
        export_apart(WandbTarget(project="evals"), CONTENT, tmp_path, scratch_in=tmp_path, seconds=4)
    assert time.monotonic() - began < 100
    assert key not in str(failed.value)
    assert list(tmp_path.iterdir()) == []


def test_mlflow_gets_one_logged_model_for_each_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow_run = pytest.importorskip("evalrun_results.exports.mlflow_run")
    exporter = mlflow_run.MlflowExporter(MlflowTarget(tracking_uri=f"file://{tmp_path}/store"), "evalrun")
    for step, accepted in ((130, 0.6), (120, 0.4), (120, 0.5)):
        exporter.export(at_step(step, accepted))
    client = mlflow_run.MlflowClient(tracking_uri=f"file://{tmp_path}/store")
    experiment = client.get_experiment_by_name("evalrun").experiment_id
    models = sorted(client.search_logged_models([experiment]), key=lambda model: str(model.name))
    assert [(model.name, str(model.status), model.params) for model in models] == [
        (f"grpo-a-step-{step}", "READY", {"step": str(step), "path": f"s3://t/global_step_{step}", "phase": "rl"})
        for step in (120, 130)
    ]
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert {model.source_run_id for model in models} == {run.info.run_id for run in runs.values()}
    figures = {metric.value for metric in models[1].metrics if metric.key == "eval/humaneval/accepted_at_1"}
    assert figures == {0.6}
    (history,) = client.get_metric_history(runs["grpo-130"].info.run_id, "eval/humaneval/accepted_at_1")
    assert (history.step, history.value) == (130, 0.6)


def test_mlflow_export_that_is_repeated_makes_only_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # as the export's process has it
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow_run = pytest.importorskip("evalrun_results.exports.mlflow_run")
    exporter = mlflow_run.MlflowExporter(MlflowTarget(tracking_uri=f"file://{tmp_path}/store"), "evalrun")
    for accepted in (0.5, 0.872):
        content = CONTENT.model_copy(update={"metrics": {**CONTENT.metrics, "eval/humaneval/accepted_at_1": accepted}})
        exporter.export(content)
    client = mlflow_run.MlflowClient(tracking_uri=f"file://{tmp_path}/store")
    (run,) = client.search_runs([client.get_experiment_by_name("evalrun").experiment_id])
    assert (run.info.run_name, run.info.status) == ("nightly", "FINISHED")
    assert run.data.metrics == {"eval/humaneval/accepted_at_1": 0.872, "eval/humaneval/coverage": 1.0}
    assert run.data.params == {"model.path": "some/model", "protocol.samples": "1"}
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    assert json.loads((artifacts / "run_info.json").read_text()) == CONTENT.info
    assert [json.loads(line)["problem_id"] for line in (artifacts / "qa_logs.jsonl").read_text().splitlines()] == [
        "HumanEval/0", "HumanEval/1",
    ]  # fmt: skip
