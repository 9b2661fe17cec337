"""From prepared data to a run: phase 0's dataset list as it stands, with its audit in the outputs, or refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.command_line import evalrun, summary
from builders.generator.model_server import Reply, completion, model_server
from builders.governance import PHASE0_DATASETS, leaked_row, phase0_sources, phase0_spec, write_plan


@pytest.fixture
def endpoint() -> Iterator[str]:
    """An OpenAI-compatible server with one answer to everything."""
    models = Reply(body={"object": "list", "data": [{"id": "Qwen/Qwen2.5-Coder-7B-Instruct", "object": "model"}]})
    with model_server(completion("```python\nprint(1)\n```"), models) as server:
        yield f"{server.url}/v1"


def phase0_plan(directory: Path, leaked: dict[str, object] | None = None) -> Path:
    sources = phase0_sources(directory, leaked)
    return write_plan(directory, [{"name": name, "source": file.name} for name, file in sources.items()])


def phase0_run(directory: Path) -> Path:
    """Write phase 0's run with its own dataset list; only the volume is a directory, and a server answers."""
    sample = phase0_spec()
    spec = {
        "model": sample["model"],
        "datasets": json.loads(json.dumps(sample["datasets"]).replace("pvc://eval-data/", "")),
        "endpoints": [{"url": "http://127.0.0.1:9/v1", "model": sample["model"]["path"]}],
    }
    run = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": "phase0"}, "spec": spec}
    path = directory / "run.yaml"
    path.write_text(json.dumps(run))
    return path


def test_phase_0s_list_runs_on_prepared_data_and_leaves_its_audit(tmp_path: Path, endpoint: str) -> None:
    data, out = tmp_path / "eval-data", tmp_path / "out"
    prepared = evalrun("data", "prepare", phase0_plan(tmp_path), "--output", data)
    assert prepared.returncode == 0, prepared.stderr
    run = phase0_run(data)
    assert evalrun("validate", "--local", run).returncode == 0
    done = evalrun("run", run, "--local", "--endpoint", endpoint, "--output", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(summary(out)["datasets"]) == set(PHASE0_DATASETS)
    audits = json.loads((data / "data_manifests" / "audit.json").read_text())["datasets"]
    recorded = json.loads((out / "run_info.json").read_text())["datasets"]
    for name in PHASE0_DATASETS:
        manifest = out / "audit" / name / "manifest.jsonl"
        assert manifest.read_bytes() == (data / "data_manifests" / f"{name}.jsonl").read_bytes()
        assert (out / "audit" / name / "audit_report.md").exists()
        assert recorded[name]["audit"]["manifest_sha256"] == audits[name]["manifest_sha256"]
        assert recorded[name]["audit"]["state"] == "passed"
        assert recorded[name]["role"] == audits[name]["role"]


def test_a_failed_audit_is_refused_before_anything_is_generated(tmp_path: Path, endpoint: str) -> None:
    data, out = tmp_path / "eval-data", tmp_path / "out"
    prepared = evalrun("data", "prepare", phase0_plan(tmp_path, leaked_row()), "--output", data)
    assert prepared.returncode == 1
    assert "codecontests_train/p30 and codecontests_valid/p0" in prepared.stderr
    done = evalrun("run", phase0_run(data), "--local", "--endpoint", endpoint, "--output", out)
    assert done.returncode == 2
    assert "AuditFailed: dataset 'codecontests_valid': its audit failed: see " in done.stdout + done.stderr
    assert not (out / "summary.json").exists()
