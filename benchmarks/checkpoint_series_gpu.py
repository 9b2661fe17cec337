"""`evalrun run --checkpoints` on a GPU: ten checkpoints on one engine, beside one of them with a start of its own.

    python3 benchmarks/checkpoint_series_gpu.py series          ten checkpoints in a row, then one by itself
    python3 benchmarks/checkpoint_series_gpu.py equal           three, whose answers are compared with fresh starts'
    python3 benchmarks/checkpoint_series_gpu.py race            a race of four on two replicas, one GPU each
    python3 benchmarks/checkpoint_series_gpu.py series --tiny   the same on a CPU: shows that it runs
    python3 benchmarks/checkpoint_series_gpu.py series --tensor-parallel 2      each replica over two GPUs

The models are those of rollout_gpu.py: Qwen2-7B's shape and random weights, so throughput only. There are two, which
take turns under ten names: ten would not fit most disks. 164 problems each, 256 tokens each, greedy.

GPU seconds count, for each GPU of the replica, while NVML says that a GPU's memory is in use; what Ray and verl take
before that is in the seconds of the whole command. A checkpoint's gap is the time from the last completion of the one
before to its first request.

`race` shows the blocks in the order of time, two at once, and counts what is left. All answers of random weights are
wrong, so that nobody is dropped and every block is seen.

`equal` asks for `protocol.deterministic`, without which two batches of one engine may differ. It compares every text,
and those of two fresh starts of one checkpoint beside them: where these differ, a swap's may too.

Needs what local_rollout_gpu.py needs.
"""

import argparse
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import random_model
import rollout_gpu
from local_rollout_gpu import State, until_free, write_run
from rollout_gpu import REAL, TINY, GpuWatch, Size

from evalrun_runtime.exits import ExitCode

COUNT, MODELS = 10, 2
BLOCK_SECONDS = 1.5
"""Minimum seconds between two requests of a checkpoint at which another block begins: a block's requests come at once.
"""


def make_checkpoints(folder: Path, count: int, *, tiny: bool) -> list[Path]:
    """Make the models, and link one of them to each of `count` checkpoints. Return the checkpoints."""
    models = [folder / "models" / str(seed) for seed in range(MODELS)]
    for seed, model in enumerate(models):
        if not model.is_dir():
            # Another process makes the model: what this process drew on a GPU would stay in the GPU's memory.
            make = [sys.executable, random_model.__file__, str(model), f"--seed={seed}", *(["--tiny"] * tiny)]
            subprocess.run(make, check=True, stdout=sys.stderr)
    found = []
    for number in range(count):
        place = folder / "checkpoints" / f"global_step_{number + 1}"
        place.mkdir(parents=True, exist_ok=True)
        for file in models[number % MODELS].iterdir():
            if not (place / file.name).exists():
                os.link(file, place / file.name)
        found.append(place)
    return found


class Commands:
    """Runs the command, with the same flags each time."""

    def __init__(self, size: Size, gpu_python: str, gpus: int) -> None:
        self.gpus = gpus
        """Number of GPUs of all replicas."""
        self._environment = rollout_gpu.environment(size)
        self._environment.pop("RAY_AUTH_MODE")
        names = f"cpu:{gpus}" if size.dtype == TINY.dtype else ",".join(map(str, range(gpus)))
        self._flags = ["--gpus", names, "--gpu-python", gpu_python]

    def run(self, file: Path, output: Path, *arguments: str) -> tuple[float, float]:
        """Run to the end. Return the seconds of the whole command, and the GPU seconds."""
        return self._timed(["run", str(file), "--local", *arguments], output)

    def race(self, file: Path, output: Path, pattern: Path) -> tuple[float, float]:
        """Race checkpoints to the end. Return the same two figures as `run`."""
        return self._timed(["race", str(file), "--checkpoints", str(pattern)], output)

    def _timed(self, arguments: Sequence[str], output: Path) -> tuple[float, float]:
        watch = GpuWatch()
        command = [sys.executable, "-m", "evalrun_cli", *arguments, *self._flags, "--output", str(output)]
        began = time.monotonic()
        code = subprocess.run(command, env=self._environment, check=False).returncode
        if code not in (ExitCode.SUCCEEDED, ExitCode.DEGRADED, ExitCode.GATE_INCONCLUSIVE):
            for log in sorted([*output.rglob("*.log")]):
                print(f"== {log}\n{log.read_text(errors='replace')[-1500:]}", flush=True)
            raise SystemExit(f"the command ended with {code}")
        seconds = time.monotonic() - began
        watch.stop()
        return seconds, self.gpus * ((watch.busy_at or 0.0) - (watch.busy_since or 0.0))


def replicas(output: Path) -> list[dict[str, Any]]:
    """Return what `run_info.json` records about a run's replicas."""
    info = json.loads((output / "run_info.json").read_bytes())
    found: list[dict[str, Any]] = info["replicas"]
    return found


def answers(output: Path) -> tuple[dict[str, str], float, float]:
    """Return the texts by problem, the start of the first completion, and the end of the last completion."""
    ledger = sqlite3.connect(f"file:{output / 'ledger.sqlite3'}?mode=ro", uri=True)
    texts = dict(ledger.execute("SELECT problem_id, text FROM samples"))
    first, last = ledger.execute(
        "SELECT min(started_at), max(started_at + generation_seconds) FROM completions"
    ).fetchone()
    ledger.close()
    return texts, first, last


def series(folder: Path, commands: Commands, size: Size, *, tiny: bool) -> None:
    """Run ten checkpoints, then one by itself. Print a line per checkpoint, and the sums."""
    places = make_checkpoints(folder, COUNT, tiny=tiny)
    file = write_run(folder / "run", places[0], size, 1, commands.gpus, 1)
    output = folder / "series"
    command, held = commands.run(file, output, "--checkpoints", str(folder / "checkpoints" / "*"))
    previous = None
    for place in sorted(places, key=lambda place: answers(output / place.name)[1]):
        _, first, last = answers(output / place.name)
        (replica,) = replicas(output / place.name)
        facts = {name: value for name, value in replica["engine"].items() if name.endswith("_seconds")}
        gap = "" if previous is None else f"gap {first - previous:.2f} s, "
        print(f"{place.name}: {gap}work {last - first:.2f} s, {json.dumps(facts)}", flush=True)
        previous = last
    print(f"{COUNT} checkpoints: {held:.1f} GPU seconds, {command:.1f} s in all", flush=True)
    file = write_run(folder / "alone_run", places[1], size, 1, commands.gpus, 1)
    command, held = commands.run(file, folder / "alone")
    print(f"one by itself: {held:.1f} GPU seconds, {command:.1f} s in all; x {COUNT} = {COUNT * held:.0f}", flush=True)


def race(folder: Path, commands: Commands, size: Size, *, tiny: bool) -> None:
    """Race four checkpoints on two replicas, and print the blocks in the order of time."""
    places = make_checkpoints(folder, 4, tiny=tiny)
    file = write_run(folder / "run", places[0], size, 2, 1, 1)
    before, output = State.now(), folder / "race"
    command, held = commands.race(file, output, folder / "checkpoints" / "*")
    seconds, left = until_free(before)
    print(f"race: {held:.1f} GPU seconds, {command:.1f} s in all, {len(left)} leftovers after {seconds:.1f} s {left}")
    rows = []
    for place in places:
        ledger = sqlite3.connect(f"file:{output / place.name / 'ledger.sqlite3'}?mode=ro", uri=True)
        asked = "SELECT started_at, started_at + generation_seconds, model FROM completions"
        rows += [(*row, place) for row in ledger.execute(asked)]
        ledger.close()
        weights = {str(each["engine"].get("weights_sha256"))[:12] for each in replicas(output / place.name)}
        print(f"{place.name}: weights {', '.join(sorted(weights))} in run_info.json", flush=True)
    wrong = sum(model != str(place) for *_, model, place in rows)
    print(f"{len(rows)} completions, {wrong} of them say another model than their checkpoint")
    began = min(rows)[0]
    blocks = []
    for place in places:
        own = sorted(row for row in rows if row[-1] == place)
        first = [own[0]] + [after for before, after in itertools.pairwise(own) if after[0] - before[0] > BLOCK_SECONDS]
        ends = [*(row[0] for row in first[1:]), float("inf")]
        for start, end in zip((row[0] for row in first), ends, strict=True):
            answered = [row for row in own if start <= row[0] < end]
            blocks.append((start - began, max(row[1] for row in answered) - began, len(answered), place.name))
    for start, end, count, name in sorted(blocks):
        print(f"{start:7.2f} to {end:7.2f} s: {name} x {count}", flush=True)


def equal(folder: Path, commands: Commands, size: Size, *, tiny: bool) -> None:
    """Compare the answers of three swaps with those of fresh starts."""
    places = make_checkpoints(folder, 3, tiny=tiny)

    def answered(name: str, place: Path, *arguments: str) -> Path:
        file = write_run(folder / f"run_of_{name}", place, size, 1, commands.gpus, 1, deterministic=not tiny)
        commands.run(file, folder / name, *arguments)
        return folder / name

    swapped = answered("series", places[0], "--checkpoints", str(folder / "checkpoints" / "*"))
    fresh = [answers(answered(f"fresh_{number}", places[number]))[0] for number in range(MODELS)]
    again = answers(answered("fresh_again", places[0]))[0]
    print(f"a second fresh start of {places[0].name}: {compared(again, fresh[0])}", flush=True)
    print(f"a fresh start of another model: {compared(fresh[1], fresh[0])}", flush=True)
    for number, place in enumerate(places):
        print(f"{place.name}: {compared(answers(swapped / place.name)[0], fresh[number % MODELS])}", flush=True)


def compared(texts: dict[str, str], wanted: dict[str, str]) -> str:
    """Describe how many texts are as wanted, and up to which share of their length the texts agree."""
    same = sum(texts[name] == text for name, text in wanted.items())
    shares = [shared_length(texts[name], text) / max(1, len(text)) for name, text in wanted.items()]
    return f"{same} of {len(wanted)} texts as a fresh start's, which agree up to {median(shares):.0%} of their length"


def shared_length(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["series", "race", "equal"])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs of the replica")
    parser.add_argument("--folder", type=Path, help="default: a new one")
    parser.add_argument("--gpu-python", default=sys.executable)
    arguments = parser.parse_args()
    size = replace(TINY if arguments.tiny else REAL, variants=1)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="evalrun-bench-"))
    gpus = 2 if arguments.what == "race" else arguments.tensor_parallel
    commands = Commands(size, arguments.gpu_python, gpus)
    {"series": series, "race": race, "equal": equal}[arguments.what](folder, commands, size, tiny=arguments.tiny)


if __name__ == "__main__":
    main()
