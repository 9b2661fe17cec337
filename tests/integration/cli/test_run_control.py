"""`evalrun ctl` on a real run: paused, bounded, killed while paused, resumed, stopped, resumed to its end."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import Command, evalrun, evalrun_started, results, summary
from builders.data import write_jsonl
from builders.playback import playback

PROBLEMS, SLOTS, BOUND, SECONDS = 48, 4, 2, 1.0
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
DEADLINE_SECONDS = 120


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[Path]:
    """An EvalRun whose server takes a second for an answer."""
    names = [str(number) for number in range(PROBLEMS)]
    problems = [
        {"dataset": "sums", "split": "test", "problem_id": name, "prompt": f"Add two numbers ({name}).",
         "ground_truth": {"inputs": ["1 2\n"], "outputs": ["3\n"]}}
        for name in names
    ]  # fmt: skip
    rows = [{"dataset": "sums", "problem_id": name, "sample": 0, "response": RIGHT} for name in names]
    source = write_jsonl(tmp_path / "problems.jsonl", problems)
    with playback(source, write_jsonl(tmp_path / "answers.jsonl", rows), model="m", seconds=SECONDS) as address:
        run = {
            "apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": "sums"},
            "spec": {
                "model": {"path": "m"},
                "datasets": [{"name": "sums", "source": "problems.jsonl"}],
                "endpoints": [{"url": f"{address}/v1", "maxConcurrentRequests": SLOTS}],
            },
        }  # fmt: skip
        (tmp_path / "run.yaml").write_text(json.dumps(run))
        yield tmp_path / "run.yaml"


class Control:
    """`evalrun ctl` on a run's directory."""

    def __init__(self, command: Command, directory: Path) -> None:
        self._command = command
        self._directory = directory

    def act(self, *words: str) -> dict[str, Any]:
        done = self._command("ctl", self._directory, *words, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def refused(self, *words: str) -> str:
        done = self._command("ctl", self._directory, *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stdout
        return done.stderr

    def until_taken(self, *words: str) -> None:
        """Act as soon as the run is under way."""
        until(lambda: self._command("ctl", self._directory, *words).returncode == 0)

    def until_gone(self) -> None:
        """Wait until the parts of a paused run have ended, whose command was killed."""
        until(lambda: self._command("ctl", self._directory, "pause").returncode == 2)

    def until_idle(self) -> float:
        """Wait until a paused run has nothing in flight. Return a time after that."""
        until(lambda: self.act("pause")["in_flight"] == 0)
        return time.time()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def request_times(output: Path) -> list[tuple[float, float]]:
    """Return when each answer's request was sent and answered."""
    return [(row["started_at"], row["started_at"] + row["gen_time"]) for row in results(output)]


def most_at_once(times: Sequence[tuple[float, float]]) -> int:
    moments = sorted([(start, 1) for start, _ in times] + [(end, -1) for _, end in times])
    found, now = 0, 0
    for _, change in moments:
        now += change
        found = max(found, now)
    return found


def events(output: Path) -> list[tuple[str, str, float]]:
    info = json.loads((output / "run_info.json").read_text())
    return [(each["act"], each["detail"], datetime.fromisoformat(each["at"]).timestamp()) for each in info["events"]]


def test_a_run_is_paused_bounded_killed_stopped_and_resumed(
    manifest: Path, tmp_path: Path, evalrun_here: Command
) -> None:
    output = tmp_path / "out"
    control = Control(evalrun_here, output)
    with evalrun_started("run", manifest, "--local", "--output", output) as process:
        control.until_taken("resume")
        until(lambda: control.act("resume")["in_flight"] == SLOTS)
        assert control.act("pause")["changed"]
        idle = control.until_idle()
        assert control.act("set", f"concurrency={BOUND}")["changed"]
        going = control.act("resume")
        assert (going["changed"], going["paused"], going["concurrency"]) == (True, False, BOUND)
        assert control.act("requeue-not-judged")["changed"] is False
        until(lambda: control.act("set", f"concurrency={BOUND}")["in_flight"] == BOUND)
        control.act("pause")
        second_idle = control.until_idle()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    control.until_gone()
    said = control.refused("resume")
    assert "the run is not under way" in said
    assert f"evalrun resume {output}" in said
    with evalrun_started("resume", output) as process:
        control.until_taken("set", f"concurrency={BOUND}")
        until(lambda: control.act("set", f"concurrency={BOUND}")["in_flight"] == BOUND)
        again = control.act("resume")
        assert (again["changed"], again["paused"], again["concurrency"]) == (False, False, BOUND)
        assert control.act("stop", "--keep")["changed"]
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 3, printed
    assert f"stopped with what there was; the rest is done by: evalrun resume {output}" in printed
    assert summary(output)["partial"] == "stopped by evalrun ctl"
    kept = {row["problem_id"] for row in results(output) if row["response"]}
    assert 0 < len(kept) < PROBLEMS
    assert f"{output} has ended: evalrun resume {output} does the rest" in control.refused("pause")
    assert control.act("stop", "--keep")["changed"] is False
    done = evalrun("resume", output)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["final_status"] for row in results(output)] == ["success"] * PROBLEMS
    assert f"evalrun rejudge {output} judges its answers again" in control.refused("set", "concurrency=3")

    acts = events(output)
    assert [(act, detail) for act, detail, _ in acts] == [
        ("pause", ""), ("set", f"concurrency={BOUND}"), ("resume", ""), ("pause", ""),
        ("resume", "the run was resumed"), ("stop", "stopped by evalrun ctl"),
    ]  # fmt: skip
    resumed, resumed_again = acts[2][2], acts[4][2]
    times = request_times(output)
    assert not [start for start, _ in times if idle < start < resumed or second_idle < start < resumed_again]
    assert most_at_once([each for each in times if each[0] < resumed]) > BOUND
    assert most_at_once([each for each in times if each[0] > resumed]) == BOUND


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stop"], "write stop --keep"),
        (["set", "concurrency=none"], "concurrency=none: write a number from 1 to 65536"),
        (["suspend"], "suspend: write pause, resume, requeue-not-judged, set concurrency=N or stop --keep"),
        (["pause"], "no run lies there: name the directory of a run on this machine, or er/NAME of a cluster"),
        (["pause", "-n", "evals"], "is on this machine: write er/NAME"),
    ],
)
def test_impossible_act_is_refused_with_a_remedy(
    words: list[str], said: str, tmp_path: Path, evalrun_here: Command
) -> None:
    done = evalrun_here("ctl", tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
