"""`evalrun run FILE --local` on GPUs: killed twice and resumed, leftovers counted; its tokens/s beside vLLM's own.

    python3 benchmarks/local_rollout_gpu.py killed          one GPU: kill -9, resume, Ctrl-C, resume to the end
    python3 benchmarks/local_rollout_gpu.py rate            one GPU: vLLM's own LLM.generate, then the command
    python3 benchmarks/local_rollout_gpu.py two             two replicas on two GPUs, then one replica over both
    python3 benchmarks/local_rollout_gpu.py killed_two      as killed, with two replicas on two GPUs
    python3 benchmarks/local_rollout_gpu.py killed --tiny   the same on a CPU, with pretended GPUs: shows that it runs

Model, prompts and engine settings are those of rollout_gpu.py: random weights, so throughput only. The command does all
of it: it checks the GPUs, starts Ray, loads, generates, judges, and ends. Its tokens/s are counted from the first
request to the last completion, by the ledger's own records.

Leftovers are what there was not before: processes, GPUs with more than 1.5 GB in use, folders of Ray, and segments of
shared memory. They are counted as soon as the command has ended, after kill -9 within ten seconds.

Needs verl, vLLM and Ray in the interpreter of --gpu-python (default: this one), and evalrun's base requirements here.
"""

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import random_model
import rollout_gpu
import yaml
from rollout_gpu import REAL, TINY, GpuWatch, Size

WATCHED = (Path("/tmp"), Path("/dev/shm"))
FREE_SECONDS = 10.0


def write_run(
    folder: Path,
    model: Path,
    size: Size,
    replicas: int,
    tensor_parallel: int,
    times: int,
    *,
    deterministic: bool = False,
) -> Path:
    """Write problems and the EvalRun that answers them."""
    folder.mkdir(parents=True)
    rollout_gpu.write_problems(folder / "problems.jsonl", rollout_gpu.prompts(size, times))
    engine = [variable.split("=", 1) for variable in size.engine_environment]
    rollout = {
        "replicas": replicas, "tensorParallel": tensor_parallel, "gpusPerNode": replicas * tensor_parallel,
        "dtype": size.dtype, "enforceEager": size.eager, "maxNumSeqs": size.max_num_seqs,
        "promptLength": size.prompt_length, "gpuMemoryUtilization": size.utilization,
        "env": [{"name": name, "value": value} for name, value in engine],
    }  # fmt: skip
    problems = {"name": "bench", "source": "problems.jsonl", "promptFormat": "Completion"}
    spec = {
        "model": {"path": str(model)},
        "datasets": [problems],
        "protocol": {"maxNewTokens": size.new_tokens, "deterministic": deterministic},
        "rollout": rollout,
        "output": {"retain": True},
    }
    run = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": "bench"}, "spec": spec}
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(run))
    return file


@dataclass(frozen=True)
class State:
    """Processes and directory entries that exist on this machine."""

    processes: frozenset[tuple[int, str]]
    entries: frozenset[Path]

    @classmethod
    def now(cls) -> "State":
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    stat = (entry / "stat").read_text()
                    is_user = (entry / "cmdline").read_bytes() != b""
                except OSError:
                    continue
                if is_user and stat.rpartition(")")[2].split()[0] != "Z":
                    found.add((int(entry.name), stat.partition("(")[2].partition(")")[0]))
        return cls(frozenset(found), frozenset(path for place in WATCHED for path in place.iterdir()))


def leftovers(before: State) -> list[str]:
    """Return the processes, directory entries and busy GPUs that remain beyond an earlier state."""
    after = State.now()
    found = [f"process {pid} {name}" for pid, name in sorted(after.processes - before.processes)]
    mine = [path for path in after.entries - before.entries if not path.name.startswith(("evalrun-bench-", "tmp"))]
    return found + [str(path) for path in sorted(mine)] + [f"GPU {number} in use" for number in busy_gpus()]


def busy_gpus() -> list[int]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no NVML or no GPU: nothing is in use
        return []
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    used = [pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles]
    return [number for number, memory in enumerate(used) if memory > rollout_gpu.FREE_GPU_MIB << 20]


def until_free(before: State) -> tuple[float, list[str]]:
    """Wait until there are no leftovers, for at most ten seconds. Return the seconds waited, and the leftovers."""
    began = time.monotonic()
    while (left := leftovers(before)) and time.monotonic() - began < FREE_SECONDS:
        time.sleep(0.1)
    return time.monotonic() - began, left


class Bench:
    """Runs the command."""

    def __init__(self, folder: Path, size: Size, gpu_python: str) -> None:
        self._folder = folder
        self._size = size
        self._gpu_python = gpu_python
        self._environment = rollout_gpu.environment(size)
        self._environment.pop("RAY_AUTH_MODE")
        self.before = State.now()

    def start(self, *arguments: str | Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "evalrun_cli", *map(str, arguments)]
        return subprocess.Popen(command, env=self._environment, cwd=self._folder)

    def run(self, file: Path, output: Path, gpus: str) -> "subprocess.Popen[bytes]":
        flags = ["--local", "--gpus", gpus, "--gpu-python", self._gpu_python]
        return self.start("run", file, *flags, "--output", output)

    def gpus(self, count: int) -> str:
        return f"cpu:{count}" if self._size.dtype == TINY.dtype else ",".join(map(str, range(count)))

    def report(self, what: str) -> None:
        seconds, left = until_free(self.before)
        print(f"{what}: {len(left)} leftovers after {seconds:.1f} s{': ' if left else ''}{'; '.join(left)}", flush=True)


def stored(output: Path) -> int:
    """Return how many answers a run has stored."""
    try:
        ledger = sqlite3.connect(f"file:{output / 'ledger.sqlite3'}?mode=ro", uri=True)
        try:
            return int(ledger.execute("SELECT count(*) FROM completions").fetchone()[0])
        finally:
            ledger.close()
    except sqlite3.Error:
        return 0


def until_stored(process: "subprocess.Popen[bytes]", output: Path, more_than: int) -> int:
    """Wait until more than this number of answers is stored. Return the number of stored answers."""
    while (found := stored(output)) <= more_than:
        if process.poll() is not None:
            raise SystemExit(f"the command ended with {process.returncode}: see {output / 'logs'}")
        time.sleep(0.05)
    return found


def killed(bench: Bench, file: Path, output: Path, gpus: int) -> None:
    """Kill a run with -9, resume it, interrupt it with Ctrl-C, and resume it to the end."""
    process = bench.run(file, output, bench.gpus(gpus))
    count = until_stored(process, output, 0)
    process.kill()
    process.wait()
    bench.report(f"kill -9 of the command with {count} answers stored")
    count = stored(output)
    process = bench.start("resume", output)
    count = until_stored(process, output, count)
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    code = process.wait()
    print(
        f"Ctrl-C: exit code {code} after {time.monotonic() - asked:.1f} s, {stored(output)} answers stored", flush=True
    )
    bench.report(f"Ctrl-C with {count} answers stored")
    code = bench.start("resume", output).wait()
    bench.report(f"resume to the end, exit code {code}")
    summary = json.loads((output / "summary.json").read_text())
    print(f"state {summary['state']}, {stored(output)} answers", flush=True)


def measured(bench: Bench, file: Path, output: Path, gpus: int) -> float:
    """Run to the end. Return tokens per second."""
    watch = GpuWatch()
    process = bench.run(file, output, bench.gpus(gpus))
    code = process.wait()
    time.sleep(0.5)
    watch.stop()
    if code != 0:
        raise SystemExit(f"the command ended with {code}: {(output / 'logs' / 'rollout.log').read_text()[-3000:]}")
    ledger = sqlite3.connect(output / "ledger.sqlite3")
    tokens, first, last = ledger.execute(
        "SELECT sum(output_tokens), min(started_at), max(started_at + generation_seconds) FROM completions"
    ).fetchone()
    ledger.close()
    free = "" if watch.busy_at is None else f"; GPUs free {watch.busy_at - last:.2f} s after the last completion"
    rate = tokens / (last - first)
    print(
        f"{file.parent.name:<24} {tokens:>9,} tokens {last - first:>7.2f} s {rate:>10,.0f} tokens/s{free}", flush=True
    )
    bench.report(f"success of {file.parent.name}")
    info = json.loads((output / "run_info.json").read_text())
    print("  run_info: " + json.dumps(info.get("replicas", info.get("generation", {})))[:1500], flush=True)
    return float(rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=("killed", "rate", "two", "killed_two"))
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on a CPU")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs: a replica starts 25 s sooner")
    parser.add_argument("--times", type=int, default=3, help="with two: how often 656 prompts")
    parser.add_argument("--model", type=Path, help="folder of the model; made there if it is not")
    parser.add_argument("--gpu-python", default=sys.executable)
    arguments = parser.parse_args()
    size = replace(TINY if arguments.tiny else REAL, eager=arguments.tiny or arguments.eager)
    folder = Path(tempfile.mkdtemp(prefix="evalrun-bench-"))
    model: Path = arguments.model or folder / "model"
    if not (model / "config.json").exists():
        make: Sequence[str] = [arguments.gpu_python, random_model.__file__, str(model), *(["--tiny"] * arguments.tiny)]
        subprocess.run(make, env=rollout_gpu.environment(size), check=True, stdout=sys.stderr)
    bench = Bench(folder, size, arguments.gpu_python)
    try:
        if "killed" in arguments.parts:
            killed(bench, write_run(folder / "killed", model, size, 1, 1, 2), folder / "killed" / "out", 1)
        if "killed_two" in arguments.parts:
            killed(bench, write_run(folder / "two", model, size, 2, 1, 4), folder / "two" / "out", 2)
        if "rate" in arguments.parts:
            alone, tokens, _ = rollout_gpu.offline_rate(model, size, 1)
            print(f"{'vLLM LLM.generate':<24} {tokens:>9,} tokens {tokens / alone:>7.2f} s {alone:>10,.0f} tokens/s")
            # vLLM's process leaves sockets behind, which are no leftovers of the command.
            bench.before = State.now()
            run = write_run(folder / "one-gpu", model, size, 1, 1, 1)
            print(f"command / LLM.generate: {measured(bench, run, folder / 'one-gpu/out', 1) / alone:.3f}", flush=True)
        if "two" in arguments.parts:
            times = 1 if arguments.tiny else arguments.times
            shapes = {"two-replicas": (2, 1), "one-replica-over-two": (1, 2), "one-gpu-long": (1, 1)}
            rates = {}
            for name, (replicas, parallel) in shapes.items():
                run = write_run(folder / name, model, size, replicas, parallel, times)
                rates[name] = measured(bench, run, folder / name / "out", replicas * parallel)
            for name, rate in rates.items():
                print(f"{name} / one GPU: {rate / rates['one-gpu-long']:.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
