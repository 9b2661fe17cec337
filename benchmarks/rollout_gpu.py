"""The whole pipeline on GPUs beside vLLM alone: tokens/s, the release of the GPU, and two GPUs beside one.

    python3 benchmarks/rollout_gpu.py                one GPU: vLLM's own LLM.generate, then the pipeline
    python3 benchmarks/rollout_gpu.py --gpus 2       the pipeline on one GPU, then on two
    python3 benchmarks/rollout_gpu.py --gpus 2 --tensor-parallel 2
                                                     one replica on both GPUs: LLM.generate, then the pipeline
    python3 benchmarks/rollout_gpu.py --tiny ...     the same on a CPU, with pretended GPUs: shows that it runs

The model has Qwen2-7B's shape (but for a vocabulary of 8,192) and random weights, made on the spot: this measures
throughput only. 164 x 4 prompts of about 100 tokens, 256 tokens each, greedy. The end-of-text token has a zero row in
the output layer, so that no answer ends early. Both sides get the same weights, prompts, sampling and engine settings
(CUDA graphs as verl asks for them, prefix caching, chunked prefill, 256 sequences).

The pipeline is the aggregator's process with its ledger on disk, and the generator that launches verl standalone
replicas in a Ray cluster. Its tokens/s are counted from the first request to the last completion, by the ledger's own
records; nothing is judged. The GPU is free when NVML says that its memory is.

Needs verl, vLLM and Ray where `python3` finds them, also in Ray's own processes, and the base requirements of evalrun;
docs/rollout.md lists them. PYTHONPATH is set here.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import random_model

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [
    ROOT / "proto" / "gen",
    *sorted(ROOT.glob("services/*/src")),
    *sorted(ROOT.glob("libs/*/src")),
    ROOT / "operator" / "src",
]
TASKS, VARIANTS = 164, 4
MAX_NUM_SEQS = 256
PROMPT_LENGTH = 1024
RAY_PORTS = (
    "ray-client-server",
    "dashboard-agent-listen",
    "dashboard-agent-grpc",
    "metrics-export",
    "runtime-env-agent",
)
"""Ports that are given, because the raylet ends itself if its agents take more than 15 s to find ports."""
FREE_GPU_MIB = 1500
"""MiB of used memory below which a GPU counts as free: a driver's context alone takes some hundred MiB."""


@dataclass(frozen=True)
class Size:
    """Size of the benchmark: the real one, or a rehearsal."""

    tasks: int
    variants: int
    new_tokens: int
    max_num_seqs: int
    dtype: str
    eager: bool
    prompt_length: int
    utilization: str
    engine_environment: tuple[str, ...]

    @property
    def prompts(self) -> int:
        return self.tasks * self.variants


REAL = Size(TASKS, VARIANTS, 256, MAX_NUM_SEQS, "bfloat16", eager=False, prompt_length=PROMPT_LENGTH, utilization="0.8",
            engine_environment=("VLLM_USE_FLASHINFER_SAMPLER=0",))  # fmt: skip
TINY = Size(8, 4, 16, 16, "float32", eager=True, prompt_length=PROMPT_LENGTH, utilization="0.8",
            engine_environment=("VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind"))  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Figures of one run of the pipeline."""

    tokens: int
    seconds: float
    release_seconds: float | None
    """Seconds from the last completion until the GPU's memory is free; None if there is no GPU."""
    ledger_release_seconds: float
    """Seconds from the last completion until Ray has the GPU back, as the generator reports."""
    start_seconds: float
    """Seconds from the first replica's start to the first request."""
    gpu_seconds: float
    engines: tuple[dict[str, str], ...]
    """Reports of the replicas about their machines, as `run_info.json` records them."""

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def prompts(size: Size, times: int = 1) -> list[str]:
    """Return the prompts: functions to complete, of about 100 tokens each, all different."""
    found = []
    for number in range(size.tasks * size.variants * times):
        task, variant = divmod(number, size.variants)
        lines = "\n".join(f"    Step {step}: add {task * 7 + step} and keep {variant}." for step in range(3))
        found.append(f'def task_{task}_{variant}(first, second):\n    """Return a number.\n{lines}\n    """\n')
    return found


def write_problems(path: Path, texts: list[str]) -> None:
    """Write the prompts in HumanEval's format: such a completion prompt is sent unchanged."""
    rows = (
        {
            "task_id": f"bench/{number}",
            "prompt": text,
            "entry_point": text.partition("(")[0].removeprefix("def "),
            "canonical_solution": "    return 0\n",
            "test": "def check(candidate):\n    assert candidate(1, 2) == 0\n",
        }
        for number, text in enumerate(texts)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def environment(size: Size) -> dict[str, str]:
    added = dict(variable.split("=", 1) for variable in size.engine_environment)
    path = os.pathsep.join([*(str(source) for source in SOURCES), os.environ.get("PYTHONPATH", "")])
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **added, **quiet, "PYTHONPATH": path.rstrip(os.pathsep), "RAY_AUTH_MODE": "disabled"}


# vLLM alone


def offline(model: Path, size: Size, tensor_parallel: int) -> None:
    """Generate with vLLM's LLM class, and print a line of JSON. Run in a separate process, whose end frees the GPU."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(model),
        dtype=size.dtype,
        tensor_parallel_size=tensor_parallel,
        max_num_seqs=size.max_num_seqs,
        max_model_len=size.prompt_length + size.new_tokens,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=float(size.utilization),
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        enforce_eager=size.eager,
        compilation_config={"cudagraph_mode": "FULL_AND_PIECEWISE"},
        disable_log_stats=True,
    )
    sampling = SamplingParams(temperature=0.0, top_p=1.0, max_tokens=size.new_tokens)
    # One request warms the engine up, as the replica's own test request does. Its words differ, so that nothing is
    # cached.
    engine.generate(["1"], SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
    started = time.perf_counter()
    answers = engine.generate(prompts(size), sampling, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(answer.outputs[0].token_ids) for answer in answers)
    inputs = sum(len(answer.prompt_token_ids) for answer in answers)
    print(json.dumps({"tokens": tokens, "seconds": seconds, "prompt_tokens": inputs}), flush=True)


def offline_rate(model: Path, size: Size, tensor_parallel: int) -> tuple[float, int, int]:
    """Return tokens/s, tokens and prompt tokens of vLLM alone."""
    command = [sys.executable, __file__, "--offline", str(model), f"--tensor-parallel={tensor_parallel}"]
    command += ["--tiny"] if size is TINY else []
    done = subprocess.run(command, env=environment(size), stdout=subprocess.PIPE, check=True)
    # vLLM logs to the same stream, also after the line of JSON.
    found = json.loads(next(line for line in done.stdout.decode().splitlines() if line.startswith('{"tokens"')))
    return found["tokens"] / found["seconds"], found["tokens"], found["prompt_tokens"]


# The pipeline


def run_config(directory: Path, model: Path, size: Size, gpus: int, tensor_parallel: int) -> Path:
    rollout = {
        "engine": "vllm", "replicas": gpus // tensor_parallel, "tensorParallel": tensor_parallel, "gpusPerNode": gpus,
        "dtype": size.dtype,
        "enforceEager": size.eager, "maxNumSeqs": size.max_num_seqs, "promptLength": size.prompt_length,
        "gpuMemoryUtilization": size.utilization,
    }  # fmt: skip
    problems = {"name": "bench", "source": str(directory / "problems.jsonl"), "promptFormat": "Completion"}
    spec = {
        "model": {"path": str(model)},
        "datasets": [problems],
        "protocol": {"maxNewTokens": size.new_tokens},
        "rollout": rollout,
    }
    order = {"schema": 1, "run": "bench", "created": "2026-01-01T00:00:00+00:00", "spec": spec}
    path = directory / "work-order.json"
    path.write_text(json.dumps({**order, "output_dir": str(directory / "out")}))
    return path


@contextlib.contextmanager
def started(command: list[str], log: Path, variables: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process whose output goes to a file, and end it."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=variables)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition: Callable[[], bool], seconds: float, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{process.args!r} did not come up: {log.read_text()[-3000:]}")
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def ray_cluster(directory: Path, gpus: int, variables: dict[str, str]) -> Iterator[str]:
    """Start Ray, and yield its address. Its sockets lie below a short path, since the kernel allows no long one."""
    port, temporary, log = free_port(), Path(tempfile.mkdtemp(prefix="ray", dir="/tmp")), directory / "ray.log"
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--include-dashboard=false"]
    command += [f"--port={port}", f"--num-gpus={gpus}", f"--num-cpus={2 * gpus + 2}", f"--temp-dir={temporary}"]
    command += [f"--{name}-port={free_port()}" for name in RAY_PORTS]
    command += ["--object-store-memory=200000000", "--disable-usage-stats"]
    try:
        with started(command, log, variables) as process:
            until(lambda: "Ray runtime started" in log.read_text(), 120, process, log)
            yield address
    finally:
        # `ray stop` would end every cluster of this machine, not only this one.
        end_session(str(temporary))
        shutil.rmtree(temporary, ignore_errors=True)


def end_session(temporary: str) -> None:
    """Kill the remaining processes of one Ray session: those that name its directory, and their descendants."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.pid != os.getpid() and any(temporary in part for part in process.cmdline()):
                for one in [*process.children(recursive=True), process]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()


class GpuWatch:
    """Records when a GPU's memory was last in use. Without NVML it records nothing."""

    def __init__(self) -> None:
        self.busy_since: float | None = None
        self.busy_at: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        while not self._ended.wait(0.05):
            if any(pynvml.nvmlDeviceGetMemoryInfo(handle).used > FREE_GPU_MIB << 20 for handle in handles):
                self.busy_at = time.time()
                self.busy_since = self.busy_since or self.busy_at


def pipeline(
    model: Path, size: Size, gpus: int, aggregator_python: str, *, times: int = 1, tensor_parallel: int = 1
) -> Measured:
    directory = Path(tempfile.mkdtemp(prefix="evalrun-rollout-"))
    variables = environment(size)
    write_problems(directory / "problems.jsonl", prompts(size, times))
    order = run_config(directory, model, size, gpus, tensor_parallel)
    log, output = directory / "aggregator.log", directory / "rollout.log"
    serve = [aggregator_python, "-m", "evalrun_aggregator", f"--work-order={order}"]
    serve += [f"--ledger={directory / 'ledger.sqlite'}"]
    # Nobody judges here: verdicts wait, and completions are what is measured.
    serve += [f"--judge=127.0.0.1:{free_port()}"]
    try:
        with ray_cluster(directory, gpus, variables) as address, started(serve, log, variables) as aggregator:
            until(lambda: " ready on " in log.read_text(), 60, aggregator, log)
            ledger = log.read_text().partition(" ready on ")[2].split()[0]
            generate = [sys.executable, "-m", "evalrun_generator.rollout", f"--work-order={order}"]
            generate += [f"--ledger={ledger}", f"--ray-address={address}", "--report-seconds=1"]
            generate += [f"--engine-env={variable}" for variable in size.engine_environment]
            watch = GpuWatch()
            try:
                with started(generate, output, variables) as generator:
                    if generator.wait() != 0:
                        raise SystemExit(f"the generator failed: {output.read_text()[-3000:]}")
                    # Watch for another second, because memory may stay in use after the generator has ended.
                    time.sleep(1)
            finally:
                watch.stop()
            print(output.read_text().strip().splitlines()[-1], file=sys.stderr)
            done = output.read_text()
            return measured(directory / "ledger.sqlite", size.prompts * times, tensor_parallel, watch.busy_at, done)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measured(ledger: Path, expected: int, gpus_each: int, busy_at: float | None, log: str) -> Measured:
    connection = sqlite3.connect(ledger)
    try:
        count, tokens, first, last = connection.execute(
            "SELECT count(*), sum(output_tokens), min(started_at), max(started_at + generation_seconds) "
            "FROM completions"
        ).fetchone()
        holders = connection.execute("SELECT worker, seconds FROM gpu_seconds").fetchall()
        engines = connection.execute("SELECT engine FROM replicas").fetchall()
    finally:
        connection.close()
    if count != expected:
        raise SystemExit(f"{count} completions instead of {expected}")
    # A holder is named by worker, replica and start. Its seconds end with the release.
    spans = [(float(name.split("\t")[2]), seconds) for name, seconds in holders if name.count("\t") == 2]
    if not spans:
        raise SystemExit(f"no GPU seconds in the ledger: {log[-2000:]}")
    released = max(begun + seconds / gpus_each for begun, seconds in spans)
    return Measured(
        tokens=tokens,
        seconds=last - first,
        release_seconds=None if busy_at is None else busy_at - last,
        ledger_release_seconds=released - last,
        start_seconds=first - min(begun for begun, _ in spans),
        gpu_seconds=sum(seconds for _, seconds in spans),
        engines=tuple(json.loads(text) for (text,) in engines),
    )


def show(name: str, found: Measured) -> None:
    release = f"{found.release_seconds:.2f} s by NVML, " if found.release_seconds is not None else ""
    print(
        f"{name:<22} {found.tokens:>9,} tokens {found.seconds:>7.2f} s {found.rate:>10,.0f} tokens/s; start "
        f"{found.start_seconds:.0f} s; last token to release {release}{found.ledger_release_seconds:.2f} s by the "
        f"ledger; {found.gpu_seconds:.0f} GPU seconds",
        flush=True,
    )
    for engine in found.engines:
        print("  reported: " + ", ".join(f"{key} {value}" for key, value in sorted(engine.items())), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1)
    parser.add_argument("--tensor-parallel", type=int, choices=(1, 2), default=1, help="GPUs of a replica")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on a CPU")
    parser.add_argument(
        "--times",
        type=int,
        help="with --gpus 2: how often 656 prompts (default 8: the last, half-empty batch weighs less)",
    )
    parser.add_argument("--model", type=Path, help="directory with a model that was made before")
    parser.add_argument("--aggregator-python", default=sys.executable, help="an interpreter that has its requirements")
    parser.add_argument("--offline", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = TINY if arguments.tiny else REAL
    if arguments.offline is not None:
        offline(arguments.offline, size, arguments.tensor_parallel)
        return
    gpus, tensor_parallel = arguments.gpus, arguments.tensor_parallel
    if gpus < tensor_parallel:
        parser.error("--tensor-parallel 2 needs --gpus 2")
    with contextlib.ExitStack() as stack:
        model = arguments.model
        if model is None:
            model = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evalrun-model-")))
            make = [sys.executable, random_model.__file__, str(model), *(["--tiny"] if size is TINY else [])]
            subprocess.run(make, env=environment(size), check=True, stdout=sys.stderr)
        if gpus == tensor_parallel:
            rate, tokens, inputs = offline_rate(model, size, tensor_parallel)
            seconds = tokens / rate
            alone = f"{tokens:>9,} tokens {seconds:>7.2f} s {rate:>10,.0f} tokens/s"
            print(f"{'vLLM LLM.generate':<22} {alone}; {inputs:,} in", flush=True)
            whole = pipeline(model, size, gpus, arguments.aggregator_python, tensor_parallel=tensor_parallel)
            show(f"pipeline, {gpus} GPU{'s' * (gpus > 1)}", whole)
            print(f"pipeline / LLM.generate: {whole.rate / rate:.3f}")
            return
        times = arguments.times or 8
        one, two = (pipeline(model, size, gpus, arguments.aggregator_python, times=times) for gpus in (1, 2))
        show("pipeline, 1 GPU", one)
        show("pipeline, 2 GPUs", two)
        print(f"two GPUs / one: {two.rate / one.rate:.3f}")


if __name__ == "__main__":
    main()
