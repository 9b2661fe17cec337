"""The commands on a real API server: apply and follow, status, logs, results. The ledger is a scripted one.

Nothing can be run in kwok's pods and they have no logs: that an aggregator sends its outputs is tested with its real
program in tests/unit/cli, and over a real pod's exec end to end only.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    OperatorProcess,
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
)

NUMBERS = itertools.count()
SUMMARY = {
    "schema": 1, "state": "Succeeded",
    "datasets": {
        "humaneval": {
            "counts": {"problems": 164, "final_status": {"success": 143}}, "coverage": 1.0,
            "metrics": {
                "accepted_at_1": {"value": 0.872, "low": 0.811, "high": 0.914}, "pass_ratio_mean": {"value": 0.9},
            },
        }
    },
}  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> ScriptedLedger:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "summary.json").write_text(json.dumps(SUMMARY))
    (outputs / "results.jsonl").write_text("{}\n")
    ledger = ScriptedLedger()
    ledger.output_url = outputs.as_uri()
    return ledger


@pytest.fixture
def operator(nodes: ControlPlane, ledger: ScriptedLedger) -> Iterator[OperatorProcess]:
    account = operator_kubeconfig(nodes)
    with serving_ledger(ledger) as address, running_operator(nodes, account, address) as process:
        yield process


@pytest.fixture
def namespace(nodes: ControlPlane) -> Iterator[str]:
    name = f"commands-{next(NUMBERS)}"
    make_namespace(nodes, name)
    yield name
    remove_namespace(nodes, name)


@contextmanager
def command(plane: ControlPlane, *arguments: str | Path) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    line = [sys.executable, "-m", "evalrun_cli", *map(str, arguments)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(plane: ControlPlane, *arguments: str | Path) -> tuple[int, str, str]:
    with command(plane, *arguments) as process:
        output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def written(tmp_path: Path, **changes: Any) -> Path:
    file = tmp_path / "run.yaml"  # JSON is YAML
    patient = {"spec.backoffLimit": 100}  # kwok ends the generator's pods at once, whatever the ledger lacks
    plain = {"spec.tls": "Disabled"}  # as the scripted ledger is
    spec = {"spec.output": {"url": "s3://bucket/x"}, **plain, **patient, **changes}
    file.write_text(json.dumps(evalrun_manifest(spec)))
    return file


def test_run_command_applies_a_file_follows_the_run_and_results_are_fetched(
    nodes: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str, tmp_path: Path
) -> None:
    with command(nodes, "run", written(tmp_path), "-n", namespace) as following:
        run = Run(nodes, namespace, "run")
        until(lambda: run.get()["kind"] == "EvalRun", "the run to be applied")
        until(lambda: run.get().get("status", {}).get("phase") == "Generating", "the run to generate", 90)
        code, output, errors = outcome(nodes, "status", "run", "-n", namespace)
        assert code == 0, errors
        assert f"EvalRun {namespace}/run: Generating" in output
        code, _, errors = outcome(nodes, "results", "run", "-n", namespace)
        assert code == 2
        assert "has no results: it is Generating" in errors
        ledger.generated = ledger.judged = 164
        output, errors = following.communicate(timeout=300)
    assert following.returncode == 0, errors
    assert "evalrun/run applied" in output
    assert "] Generating | " in output
    assert "0.8720" in output
    code, output, errors = outcome(nodes, "results", "run", "-n", namespace, "--output", tmp_path / "brought")
    assert code == 0, errors
    assert "87.2 %" in output
    assert json.loads((tmp_path / "brought" / "summary.json").read_text()) == SUMMARY
    assert (tmp_path / "brought" / "results.jsonl").exists()
    code, _, errors = outcome(nodes, "logs", "run", "-n", namespace, "--part", "aggregator")
    assert code == 1  # kwok's pods have none
    assert "run-aggregator-0" in errors


def test_run_stopped_by_ctl_has_reason_stopped_and_outputs(
    nodes: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str, tmp_path: Path
) -> None:
    """That `evalrun ctl` reaches an aggregator is tested beside a real one in tests/integration/cli."""
    code, _, errors = outcome(nodes, "ctl", "er/nobody", "pause", "-n", namespace)
    assert (code, errors.strip()) == (
        2, f"evalrun: there is no EvalRun nobody in namespace {namespace}: name it, or its -n NAMESPACE",
    )  # fmt: skip
    code, output, errors = outcome(nodes, "run", written(tmp_path), "-n", namespace, "--no-follow")
    assert code == 0, errors
    run = Run(nodes, namespace, "run")
    until(lambda: run.get().get("status", {}).get("phase") == "Generating", "the run to generate", 90)
    ledger.generated, ledger.judged = 100, 60
    code, output, errors = outcome(nodes, "ctl", "er/run", "resume", "-n", namespace)
    assert (code, output) != (0, "")  # nothing can be run in kwok's pods
    assert "run-aggregator-0" in errors
    ledger.stopped_by_user, ledger.ended_early = True, "stopped by evalrun ctl"
    until(lambda: run.get()["status"]["phase"] == "Failed", "the run to end")
    status = run.get()["status"]
    reasons = {condition["type"]: condition["reason"] for condition in status["conditions"]}
    assert (reasons["Complete"], status["outputURL"]) == ("Stopped", ledger.output_url)


def test_ctrl_c_ends_the_command_that_follows_but_not_the_run(
    nodes: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str, tmp_path: Path
) -> None:
    with command(nodes, "run", written(tmp_path), "-n", namespace) as following:
        lines = iter(following.stdout or ())
        assert any("Generating" in line for line in lines)
        following.send_signal(signal.SIGINT)
        rest = "".join(lines)
    assert following.returncode == 130
    assert f"evalrun status run -n {namespace} --follow" in rest
    ledger.generated = ledger.judged = 164
    code, output, _ = outcome(nodes, "status", "run", "-n", namespace, "--follow")
    assert code == 0
    assert "Succeeded" in output


def test_refusal_of_api_server_is_bad_input(nodes: ControlPlane, namespace: str, tmp_path: Path) -> None:
    file = written(tmp_path, **{"metadata.name": "run", "metadata.labels": {"bad label!": "x"}})
    code, _, errors = outcome(nodes, "run", file, "-n", namespace)
    assert code == 2
    assert "bad label!" in errors
    code, _, errors = outcome(nodes, "status", "nobody", "-n", namespace)
    assert (code, errors.strip()) == (
        2, f"evalrun: there is no EvalRun nobody in namespace {namespace}: name it, or its -n NAMESPACE",
    )  # fmt: skip
