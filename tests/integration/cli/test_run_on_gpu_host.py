"""`evalrun run FILE --local` with `spec.rollout`: the real command, processes and signals around a pretended Ray.

Leftovers are counted after success, Ctrl-C, kill -9 of the command and of the process that started Ray, and resume.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from builders.command_line import DEMO, child_running, evalrun, evalrun_started, processes_with, summary, verdicts
from builders.generator.pretended_gpu_python import make_pretended_gpu_python, segments_of

from evalrun_generator.gpu_host.session_directory import find_abandoned_directories

SLOW_ANSWERS = {"EVALRUN_RECORDED_LATENCY_SECONDS": "1", "EVALRUN_RECORDED_MAX_CONCURRENCY": "1"}
HOST = "evalrun_generator.gpu_host"


def write_run(directory: Path, **rollout: object) -> Path:
    """Write the demo's first problems with replicas of its own."""
    manifest = yaml.safe_load(DEMO.read_text())
    manifest["spec"].pop("endpoints", None)
    manifest["spec"]["datasets"][0] |= {"stopAfterTimeouts": 1, "maxProblems": 8}
    manifest["spec"]["rollout"] = {"tensorParallel": 1, "gpusPerNode": 1, **rollout}
    file = directory / "run.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


@pytest.fixture
def python(tmp_path: Path) -> Path:
    model = yaml.safe_load(DEMO.read_text())["spec"]["model"]["path"]
    directory = tmp_path / "model" / model  # a directory, so that nothing is looked for on a hub
    directory.mkdir(parents=True)
    return make_pretended_gpu_python(tmp_path / "gpu-python", model)


@pytest.fixture
def run(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str | Path, ...]]:
    """The command's arguments. What it leaves is counted after the test."""
    monkeypatch.chdir(tmp_path / "model")
    yield ("run", write_run(tmp_path), "--local", "--gpus", "cpu", "--gpu-python", python, "--output", tmp_path / "out")
    assert find_abandoned_directories() == []
    assert segments_of(python) == []
    assert leftovers(tmp_path) == []


def leftovers(directory: Path) -> list[int]:
    """Return the processes that name a test's directory."""
    return processes_with(str(directory))


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what other processes do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def until_generating(output: Path) -> None:
    """Wait until the generator has been started, and its first answers are on their way."""
    until(lambda: (output / "logs" / "gpu_host.json").exists())


def test_run_with_rollout_generates_judges_and_leaves_nothing(run: tuple[str | Path, ...], tmp_path: Path) -> None:
    done = evalrun(*run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(tmp_path / "out")["state"] == "Succeeded"
    assert len(verdicts(tmp_path / "out")) == 8
    assert "times: Ray" in done.stderr


def test_run_after_ctrl_c_frees_the_gpus_and_resume_completes(
    run: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SLOW_ANSWERS.items():
        monkeypatch.setenv(name, value)
    with evalrun_started(*run) as process:
        until_generating(tmp_path / "out")
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert leftovers(tmp_path) == []
    done = evalrun("resume", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(verdicts(tmp_path / "out")) == 8


@pytest.mark.parametrize("victim", ["command", "host"])
def test_run_after_a_kill_leaves_nothing_and_completes(
    victim: str, run: tuple[str | Path, ...], python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SLOW_ANSWERS.items():
        monkeypatch.setenv(name, value)
    with evalrun_started(*run) as process:
        until_generating(tmp_path / "out")
        host = child_running(process.pid, HOST)
        assert host is not None
        assert segments_of(python)
        os.kill(host if victim == "host" else process.pid, signal.SIGKILL)
        if victim == "command":
            process.wait()
            until(lambda: not leftovers(tmp_path), 10)
        else:
            printed, _ = process.communicate(timeout=90)
            assert process.returncode == 0, printed
    if victim == "command":
        done = evalrun("resume", tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(verdicts(tmp_path / "out")) == 8


def test_rollout_that_needs_more_gpus_is_refused_before_anything_starts(
    python: Path, tmp_path: Path, evalrun_here: Callable[..., CompletedProcess[str]]
) -> None:
    file = write_run(tmp_path, tensorParallel=2, gpusPerNode=8)
    arguments = ("run", file, "--local", "--gpus", "cpu:2", "--gpu-python", python, "--output", tmp_path / "out")
    done = evalrun_here(*arguments)
    assert done.returncode == 2
    assert "asks for 4 replicas of 2 GPUs, 8 in all, and this machine gives 2 GPUs: add --replicas 1" in done.stderr
    assert not (tmp_path / "out").exists()


def test_interpreter_without_verl_is_refused_with_the_install_command(
    tmp_path: Path, evalrun_here: Callable[..., CompletedProcess[str]]
) -> None:
    python = make_pretended_gpu_python(tmp_path / "gpu-python", "m", verl="0.8.0")
    done = evalrun_here("run", write_run(tmp_path), "--local", "--gpus", "cpu", "--gpu-python", python)
    assert done.returncode == 2
    assert "it lacks verl==0.9.1: run `evalrun setup gpu`" in done.stderr
    assert f"{python} -m pip install verl==0.9.1" in done.stderr


def test_flags_of_gpus_without_rollout_are_refused(
    tmp_path: Path, evalrun_here: Callable[..., CompletedProcess[str]]
) -> None:
    done = evalrun_here("run", DEMO, "--local", "--endpoint", "builtin:demo", "--gpus", "all")
    assert done.returncode == 2
    assert "--gpus: only for replicas that are started here" in done.stderr


def test_ray_that_does_not_start_is_named(python: Path, run: tuple[str | Path, ...]) -> None:
    python.write_text(
        python.read_text().replace("Ray runtime started", "Ray is sad").replace("signal.pause()", "break")
    )
    done: subprocess.CompletedProcess[str] = evalrun(*run)
    assert done.returncode == 1
    assert "Ray did not start on this machine" in done.stderr


def test_doctor_reports_the_machine_and_fails_if_it_lacks_a_requirement(python: Path) -> None:
    done = evalrun("doctor", "--gpu-python", python, "--json")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert {"Python", "kernel", "containment", "languages", "GPUs", "verl", "engine"} <= findings.keys()
    assert findings["verl"]["value"].startswith("verl 0.9.1")
    assert "python" in findings["languages"]["value"]
    lacks = [finding for finding in findings.values() if finding["required"] and finding["lacks"]]
    assert done.returncode == (1 if lacks else 0), done.stdout + done.stderr


def test_doctor_names_an_interpreter_that_lacks_verl(tmp_path: Path) -> None:
    python = make_pretended_gpu_python(tmp_path / "gpu-python", "m", verl="0.8.0")
    done = evalrun("doctor", "--gpu-python", python)
    assert "lacks: it lacks verl==0.9.1: run `evalrun setup gpu`" in done.stdout
