"""Schedules on a real API server: 60 nights with a driven clock; 1,000 checkpoints, the operator killed 50 times.

API server, role, listings and the schedules' controller are real; the Job controller, the kubelet and the runs'
controller are played (tests/builders/operator/scheduled_nights.py).

    .venv/bin/python benchmarks/schedule_nights.py [--nights 60] [--checkpoints 1000] [--kills 50]

Exits with 1 if a sound checkpoint has not exactly one EvalRun, or a broken one has any. Prints the seconds from a start
that finds a checkpoint complete to its EvalRun, beside the aim of 30 s.
"""

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.cluster.controllers import apply_crds  # noqa: E402
from builders.cluster.controlplane import ControlPlane, find_binaries, running_control_plane  # noqa: E402
from builders.operator.running_operator import operator_kubeconfig  # noqa: E402
from builders.operator.schedule_world import SHARDS, write_checkpoint  # noqa: E402
from builders.operator.scheduled_nights import Nights, nights  # noqa: E402

from evalrun_operator.schedules.cron import parse_cron  # noqa: E402

AIM_SECONDS = 30.0
FAULTS = ("none", "none", "none", "slow", "broken", "rewritten", "deleted", "bucket", "down")


def night_after_night(plane: ControlPlane, kubeconfig: Path, directory: Path, count: int) -> bool:
    """Simulate nights, half of them around each change of the clocks, each with one fault of FAULTS. Return whether
    each sound checkpoint got its runs."""
    cron, chance = parse_cron("30 2 * * *", "Europe/Berlin"), random.Random(19)
    evening = datetime(2040, 3, 12, 18, 0, tzinfo=UTC)
    changes = {"spec.schedule": "30 2 * * *", "spec.checkpoints.policy": "EveryNew"}
    expected: Counter[int] = Counter()
    with nights(plane, kubeconfig, "nights", directory, evening, changes) as world:
        for number in range(count):
            if number == count // 2:
                world.set_clock(datetime(2040, 10, 16, 18, 0, tzinfo=UTC))
                world.play(lambda: world.is_settled(world.now - timedelta(days=1)), "the starts of a summer away")
                world.runs()
            start = cron.next_after(world.now)
            if start is None:
                raise RuntimeError("no next start")
            fault, step = chance.choice(FAULTS), 10 * (number + 1)
            before = start - timedelta(hours=1)
            if fault == "down":
                world.kill()
            write_checkpoint(
                directory, step, start if fault == "slow" else before, missing=None if fault != "broken" else SHARDS[1]
            )
            if fault != "broken":
                expected[step] += 1
            if fault == "rewritten" and step > 30 and (directory / f"global_step_{step - 20}").exists():
                write_checkpoint(directory, step - 20, before, weights=f"night {number}")
                expected[step - 20] += 1
            if fault == "deleted":
                shutil.rmtree(directory / f"global_step_{step - 10}", ignore_errors=True)
            world.reachable = fault != "bucket"
            if fault == "down":
                world.set_clock(start + timedelta(hours=5))
                world.start()
                world.play(partial(world.is_settled, start), f"night {number} after the operator was down")
                world.runs()
                world.end_runs()
                continue
            world.night(start)
            if fault in {"slow", "bucket"}:
                world.reachable = True
                world.set_clock(start + timedelta(minutes=30))
                world.play(partial(_has_run, world, step), f"night {number}")
                world.end_runs()
        world.set_clock(world.now + timedelta(days=2))
        world.play(lambda: world.is_settled(world.now - timedelta(days=1)), "the last night")
        world.runs()
        got = Counter(world.steps)
    wrong = {step: (got[step], wanted) for step in got | expected if got[step] != (wanted := expected[step])}
    print(
        f"{count} nights: {sum(got.values())} EvalRuns of {len(expected)} sound checkpoints; wrong: {wrong or 'none'}"
    )
    return not wrong


def _has_run(world: Nights, step: int) -> bool:
    world.runs()
    return step in world.steps


def many_checkpoints(plane: ControlPlane, kubeconfig: Path, directory: Path, count: int, kills: int) -> bool:
    """Write checkpoints in batches of 16, a tenth of them broken or rewritten, and kill the operator at random. Return
    whether each sound checkpoint got its runs in time."""
    chance, now = random.Random(20), datetime(2040, 5, 1, 12, 0, tzinfo=UTC)
    changes = {
        "spec.schedule": "*/10 * * * *", "spec.checkpoints.policy": "EveryNew", "spec.checkpoints.maxPerTick": 16,
        "spec.concurrencyPolicy": "Allow",
    }  # fmt: skip
    expected: Counter[int] = Counter()
    seconds: list[float] = []
    batches = -(-count // 16)
    deadly = set(chance.sample(range(batches), min(kills, batches)))
    with nights(plane, kubeconfig, "many", directory, now, changes) as world:
        for batch in range(batches):
            start = now + timedelta(minutes=10 * (batch + 1))
            for step in range(16 * batch + 1, min(count, 16 * (batch + 1)) + 1):
                luck = chance.random()
                write_checkpoint(
                    directory, step, start - timedelta(hours=1), missing=SHARDS[0] if luck < 0.05 else None
                )
                expected[step] += luck >= 0.05
                # Rewrite only a checkpoint that has its run. The limit per start may have left it out, and then its
                # first state would get no run.
                if luck > 0.95 and expected[step - 16] == 1 and step - 16 in world.steps:
                    write_checkpoint(directory, step - 16, start - timedelta(hours=1), weights="again")
                    expected[step - 16] += 1
            began = time.monotonic()
            world.set_clock(start)
            if batch in deadly:
                # The kill may hit any point of the start.
                time.sleep(chance.random() * 2)
                world.run_jobs()
                world.kill()
                world.start()
            known = len(world.made)
            seconds += _until_settled(world, start, began, known)
            world.end_runs()
        # Further starts take the checkpoints that the limit per start has left out.
        for more in range(1, 8):
            world.night(now + timedelta(minutes=10 * (batches + more)))
        got = Counter(world.steps)
        killed = world.kills
    wrong = {step: (got[step], wanted) for step in got | expected if got[step] != (wanted := expected[step])}
    p95 = statistics.quantiles(seconds, n=20)[18]
    print(f"{count} checkpoints, {killed} kills: {sum(got.values())} EvalRuns; wrong: {wrong or 'none'}")
    print(f"from the start to the EvalRun: p50 {statistics.median(seconds):.1f} s, p95 {p95:.1f} s "
          f"({p95 / AIM_SECONDS:.2f} of the aim of {AIM_SECONDS:.0f} s)")  # fmt: skip
    return not wrong and p95 <= AIM_SECONDS


def _until_settled(world: Nights, start: datetime, began: float, known: int) -> list[float]:
    seconds: list[float] = []

    def settled() -> bool:
        nonlocal known
        world.runs()
        fresh, known = len(world.made) - known, len(world.made)
        seconds.extend([time.monotonic() - began] * fresh)
        return world.is_settled(start)

    world.play(settled, f"the start of {start}", 60)
    settled()
    return seconds


def main() -> int:
    """Run both parts. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--checkpoints", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, running_control_plane(find_binaries(), Path(directory)) as plane:
        apply_crds(plane, ROOT / "k8s" / "crd.yaml")
        kubeconfig = operator_kubeconfig(plane)
        well = True
        if arguments.nights:
            well &= night_after_night(plane, kubeconfig, Path(directory) / "nights", arguments.nights)
        if arguments.checkpoints:
            well &= many_checkpoints(
                plane, kubeconfig, Path(directory) / "many", arguments.checkpoints, arguments.kills
            )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
