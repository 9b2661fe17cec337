"""`evalrun publish wandb` and `mlflow`: a run that has ended is sent as it would have been sent at its end."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.command_line import COMMAND, DEMO, evalrun
from builders.results.exports import wandb_records
from builders.results.wandb_server import wandb_server


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the demo that wrote its export to WandB into a directory."""
    place = tmp_path_factory.mktemp("sent")
    manifest = yaml.safe_load(DEMO.read_text())
    manifest["spec"]["exports"] = {"wandb": {"project": "evals", "entity": "team", "mode": "offline"}}
    (place / "run.yaml").write_text(yaml.safe_dump(manifest))
    done = evalrun("run", place / "run.yaml", "--local", "--endpoint", "builtin:demo", "--output", place / "out")
    assert done.returncode == 0, done.stderr
    return place / "out"


def sent_at_its_end(run: Path) -> tuple[str, dict[str, Any]]:
    (written,) = run.glob("wandb/offline-run-*/run-*.wandb")
    records = list(wandb_records(written))
    (opened,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    items = [item for record in records for item in record.history.item]
    logged = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
    return opened.run_id, {name: value for name, value in logged.items() if name.startswith("eval/")}


def test_resend_prints_the_content_sent_at_the_runs_end(run: Path) -> None:
    printed = evalrun("publish", "wandb", run)
    assert printed.returncode == 0, printed.stderr
    leaving = json.loads(printed.stdout)
    assert leaving["to"] == {"kind": "wandb", "project": "evals", "entity": "team", "tags": [], "mode": "online"}
    assert (leaving["id"], leaving["metrics"]) == sent_at_its_end(run)
    assert len(leaving["metrics"]) > 20
    assert "exports" not in leaving["info"]


def test_run_sent_repeatedly_to_wandb_is_stored_once(run: Path) -> None:
    with wandb_server() as server:
        environment = {**os.environ, "WANDB_API_KEY": "0123456789" * 4, "WANDB_BASE_URL": server.address}
        for _ in range(2):
            command = [*COMMAND, "publish", "wandb", str(run), "--send"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
            assert done.returncode == 0, done.stderr
    known, metrics = sent_at_its_end(run)
    assert done.stdout.strip() == f"{server.address}/team/evals/runs/{known}"
    assert set(server.runs) == {known}
    assert server.history[known][0].items() >= metrics.items()


def test_run_sent_repeatedly_to_mlflow_is_stored_once(run: Path, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    for _ in range(2):
        done = evalrun("publish", "mlflow", run, "--tracking-uri", store, "--send")
        assert done.returncode == 0, done.stderr
    (figure,) = tmp_path.glob("store/*/*/metrics/eval/demo/accepted_at_1")
    assert {line.split()[1] for line in figure.read_text().splitlines()} == {"0.40625"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mlflow",), "name the server of MLflow: write --tracking-uri ADDRESS, or set MLFLOW_TRACKING_URI"),
        (("wandb", "--send"), "not sent to wandb: no API key: set WANDB_API_KEY"),
    ],
)
def test_resend_without_server_or_key_names_the_missing_setting(
    run: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = evalrun("publish", arguments[0], run, *arguments[1:])
    assert done.returncode == 2
    assert said in done.stderr


def test_resend_of_foreign_directory_affects_no_other_run_and_moves_no_cursor(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    info = json.loads((copy / "run_info.json").read_text())
    info["run"] = strange = "n\u00a0\u007f\x1b[2J\U000e0001"
    info["exports"]["wandb"]["id"] = "x' OR tags.a = 'b"
    (copy / "run_info.json").write_text(json.dumps(info))
    printed = evalrun("publish", "wandb", copy)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.isascii()
    assert printed.stdout.replace("\n", "").isprintable()
    leaving = json.loads(printed.stdout)
    assert leaving["run"] == strange
    assert re.fullmatch(r"[0-9a-f]{16}", leaving["id"])
