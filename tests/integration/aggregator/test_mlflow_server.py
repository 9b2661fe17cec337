"""The exporter against MLflow's own server, with a database behind it instead of a directory.

It needs `EVALRUN_TEST_MLFLOW`: an interpreter with the whole package `mlflow`, in the version of our client. `make
test-peers` sets it.
"""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from builders.cluster.controlplane import until
from builders.ports import free_ports

from evalrun_results.exports.content import CurvePoint, ExportContent
from evalrun_results.exports.exporter import MlflowTarget
from evalrun_results.exports.process import export_apart

PYTHON = os.environ.get("EVALRUN_TEST_MLFLOW")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="EVALRUN_TEST_MLFLOW names no interpreter with mlflow")
ACCEPTED = "eval/humaneval/accepted_at_1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """MLflow's server over SQLite; it also stores the artifacts."""
    assert PYTHON is not None
    have = subprocess.run([PYTHON, "-c", "import mlflow; print(mlflow.__version__)"], capture_output=True, check=True)
    assert have.stdout.decode().strip() == version("mlflow-skinny")
    (port,) = free_ports(1)
    command = [
        PYTHON, "-m", "mlflow", "server", f"--backend-store-uri=sqlite:///{tmp_path}/runs.sqlite3",
        f"--artifacts-destination={tmp_path}/artifacts", "--host=127.0.0.1", f"--port={port}", "--workers=1",
    ]  # fmt: skip
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with (tmp_path / "mlflow.log").open("wb") as log:  # a group of its own: the server's workers outlive it else
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
    try:
        until(answers, "MLflow's server", 400)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def content(step: int, accepted: float) -> ExportContent:
    point = CurvePoint(id="cafe1234", schedule="grpo.a", step=step, phase="rl", model=f"s3://t/global_step_{step}")
    return ExportContent(
        id=f"run{step}", run=f"grpo-{step}", namespace="evals", info={"spec": {"model": {"path": "some/model"}}},
        metrics={ACCEPTED: accepted}, qa=[{"problem_id": "HumanEval/0"}], point=point,
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_mlflow_server_stores_each_checkpoint_once(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    target = MlflowTarget(tracking_uri=server)
    # The later step first; the last export again, as after a restart that lost its note.
    urls = [
        export_apart(target, content(step, accepted), tmp_path, scratch_in=None, seconds=100).url
        for step, accepted in ((130, 0.6), (120, 0.4), (120, 0.5))
    ]
    assert all(url.startswith(f"{server}/#/experiments/") for url in urls)
    assert urls[1] == urls[2]
    mlflow_run = pytest.importorskip("evalrun_results.exports.mlflow_run")
    client = mlflow_run.MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("evalrun").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert {name: run.data.metrics[ACCEPTED] for name, run in runs.items()} == {"grpo-120": 0.5, "grpo-130": 0.6}
    models = sorted(client.search_logged_models([experiment]), key=lambda model: str(model.name))
    assert [(model.name, str(model.status), model.params["step"]) for model in models] == [
        ("grpo-a-step-120", "READY", "120"), ("grpo-a-step-130", "READY", "130"),
    ]  # fmt: skip
    assert [model.source_run_id for model in models] == [runs[f"grpo-{step}"].info.run_id for step in (120, 130)]
    directory = Path(client.download_artifacts(runs["grpo-130"].info.run_id, "", str(tmp_path)))
    assert json.loads((directory / "run_info.json").read_text()) == content(130, 0.6).info
    assert (directory / "qa_logs.jsonl").read_text().count("\n") == 1
