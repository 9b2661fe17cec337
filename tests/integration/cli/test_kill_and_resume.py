"""Any part may be killed at any moment: after the restart, or `--resume`, the verdicts and counts are the same."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from builders.command_line import DEMO, child_running, evalrun, evalrun_started, summary, verdicts

SEED = int(os.environ.get("EVALRUN_KILL_SEED", "20260101"))
MOMENTS = int(os.environ.get("EVALRUN_KILL_MOMENTS", "10"))
"""Each takes some 15 s; another seed, and more of them, once in a while."""
VICTIMS = {
    "generator": "evalrun_generator",
    "aggregator": "evalrun_aggregator",
    "judge": "evalrun_judge",
    "sandbox": "evalrun_sandbox",
    "command": "",
}
RUN = ("run", DEMO, "--local", "--endpoint", "builtin:demo")

Outcome = dict[tuple[str, str, int], str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    done = evalrun(*RUN, "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr
    return verdicts(output)


def kill_at(parent: int, victim: str, delay: float) -> bool:
    """Wait until the victim runs, then `delay` seconds, then kill it; False where the run ended before."""
    moment = threading.Event()  # never set: the random moment is a time, there is nothing to wait for
    deadline = time.monotonic() + 30
    module = VICTIMS[victim] or VICTIMS["aggregator"]
    while (child := child_running(parent, module)) is None:
        if time.monotonic() > deadline or not Path(f"/proc/{parent}").exists():
            return False
        moment.wait(0.01)
    moment.wait(delay)
    try:
        os.kill(child if VICTIMS[victim] else parent, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_kill_changes_nothing(moment: int, undisturbed: Outcome, tmp_path: Path) -> None:
    rng = random.Random(SEED + moment)
    victim, delay = list(VICTIMS)[moment % len(VICTIMS)], rng.uniform(0.0, 3.0)
    print(f"seed {SEED}, moment {moment}: SIGKILL to the {victim} {delay:.3f} s after its start")
    output = tmp_path / "out"
    with evalrun_started(*RUN, "--output", output) as process:
        kill_at(process.pid, victim, delay)
        printed, _ = process.communicate(timeout=50)
    if process.returncode != 0:
        assert victim == "command" or process.returncode in (1, 130), printed
        done = evalrun(*RUN, "--resume", output)
        assert done.returncode == 0, printed + done.stdout + done.stderr
    assert verdicts(output) == undisturbed
    assert summary(output)["state"] == "Succeeded"
