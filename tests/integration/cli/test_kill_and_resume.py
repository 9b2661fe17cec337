"""Any part may be killed at any moment: after the restart, or `--resume`, the verdicts and counts are the same."""

import os
import random
from pathlib import Path

import pytest
from builders.command_line import VICTIMS, evalrun, evalrun_started, kill_at, quick_demo, run_of, summary, verdicts

SEED = int(os.environ.get("EVALRUN_KILL_SEED", "20260101"))
MOMENTS = int(os.environ.get("EVALRUN_KILL_MOMENTS", str(len(VICTIMS))))
"""Each takes some 10 s: every part once; `make kill-runs` tries 20."""
PROBLEMS = 16
SLOW_ANSWERS = {"EVALRUN_RECORDED_LATENCY_SECONDS": "0.2", "EVALRUN_RECORDED_MAX_CONCURRENCY": "4"}
GENERATION_SECONDS = 0.8
"""Of 16 answers, four at a time. Else the generator would mostly have ended before its moment comes."""
RUN_SECONDS = 2.0
"""Of the other parts, on a quiet machine: one of the answers never ends."""
HITS: list[bool] = []

Run = tuple[str | Path, ...]
RunOutcome = dict[tuple[str, str, int], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(quick_demo(tmp_path_factory.mktemp("run"), PROBLEMS))


@pytest.fixture(scope="module")
def undisturbed(run: Run, tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    done = evalrun(*run, "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr
    return verdicts(output)


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_run_killed_and_resumed_gets_the_same_verdicts(
    moment: int, run: Run, undisturbed: RunOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SLOW_ANSWERS.items():
        monkeypatch.setenv(name, value)
    rng = random.Random(SEED + moment)
    victim = list(VICTIMS)[moment % len(VICTIMS)]
    delay = rng.uniform(0.0, GENERATION_SECONDS if victim == "generator" else RUN_SECONDS)
    print(f"seed {SEED}, moment {moment}: SIGKILL to the {victim} {delay:.3f} s after its start")
    output = tmp_path / "out"
    with evalrun_started(*run, "--output", output) as process:
        killed = kill_at(process.pid, victim, delay)
        HITS.append(killed)
        print("it was running" if killed else "it had ended: nothing was killed")
        printed, _ = process.communicate(timeout=150)
    if process.returncode != 0:
        assert victim == "command" or process.returncode in (1, 130), printed
        began = output.exists()
        if process.returncode > 0:
            assert began == ("stopped before the run began: nothing was written" not in printed), printed
        done = evalrun(*run, "--resume" if began else "--output", output)
        assert done.returncode == 0, printed + done.stdout + done.stderr
    assert verdicts(output) == undisturbed
    assert summary(output)["state"] == "Succeeded"


def test_most_kills_hit_a_running_part() -> None:
    assert sum(HITS) * 2 >= len(HITS), "the moments are later than the runs last: nothing was tested"
