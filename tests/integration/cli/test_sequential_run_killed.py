"""A run of recorded answers with a sequential gate, on one machine: it stops early, and a kill changes no decision."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.command_line import VICTIMS, evalrun, evalrun_started, kill_at, quick_demo, results, run_of, summary

SEED = int(os.environ.get("EVALRUN_KILL_SEED", "20260102"))
MOMENTS = int(os.environ.get("EVALRUN_GATE_KILL_MOMENTS", "2"))
"""Each takes some 10 s; `make kill-gates` tries 20."""
SLOW_ANSWERS = {"EVALRUN_RECORDED_LATENCY_SECONDS": "0.1", "EVALRUN_RECORDED_MAX_CONCURRENCY": "4"}
RUN_SECONDS = 2.0
PATIENCE = 280.0
"""A run takes 5 s where the machine is idle; a crowded one is no failure of the decision."""
HITS: list[bool] = []

pytestmark = pytest.mark.timeout(3 * PATIENCE)

Decided = tuple[dict[str, Any], list[tuple[str, str]]]


def decided(output: Path) -> Decided:
    """Return what the gate decided, and the problems that decided it with their verdicts, in order."""
    return summary(output)["gate"], [(row["problem_id"], row["final_status"]) for row in results(output)]


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gated")
    demo = quick_demo(directory)
    done = evalrun(*run_of(demo), "--output", directory / "main", timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = yaml.safe_load(demo.read_text())
    asked = {"baseline": "main", "dataset": "demo", "maxRegression": "0.25", "sequential": True}
    manifest["spec"]["gates"] = [asked]
    file = directory / "gated.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


@pytest.fixture(scope="module")
def undisturbed(gated: Path) -> Decided:
    output = gated.parent / "undisturbed"
    done = evalrun(*run_of(gated), "--output", output, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Gate PASS: demo accepted_at_1: " in done.stdout
    assert "(stopped early)" in done.stdout
    return decided(output)


def test_undisturbed_run_draws_only_the_problems_needed_for_the_decision(undisturbed: Decided) -> None:
    gate, rows = undisturbed
    assert gate["decision"] == "PASS"
    assert len(rows) == gate["decided_after"] < gate["of_problems"] == 32


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_run_killed_and_resumed_makes_the_same_decision(
    moment: int, gated: Path, undisturbed: Decided, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SLOW_ANSWERS.items():
        monkeypatch.setenv(name, value)
    rng = random.Random(SEED + moment)
    victim = ("aggregator", *VICTIMS)[moment % (1 + len(VICTIMS))]
    delay = rng.uniform(0.0, RUN_SECONDS)
    print(f"seed {SEED}, moment {moment}: SIGKILL to the {victim} {delay:.3f} s after its start")
    output = tmp_path / "out"
    with evalrun_started(*run_of(gated), "--output", output) as process:
        HITS.append(kill_at(process.pid, victim, delay))
        printed, _ = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        began = "stopped before the run began: nothing was written" not in printed
        done = evalrun(*run_of(gated), "--resume" if began else "--output", output, timeout=PATIENCE)
        assert done.returncode == 0, printed + done.stdout + done.stderr
    assert decided(output) == undisturbed


def test_some_kills_hit_a_running_part() -> None:
    assert any(HITS), "the moments are later than the runs last: nothing was tested"
