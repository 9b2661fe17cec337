"""A Ray cluster with pretended GPUs, a tiny model, and rollouts on them: processes of the gen-cpu environment."""

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from builders.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [ROOT / "proto" / "gen", *sorted(ROOT.glob("libs/*/src")), *sorted(ROOT.glob("services/*/src"))]
NAMES_OF_ENGINES = ("VLLM::EngineCore", "VLLM::Worker")
NAMES_OF_REPLICAS = ("ray::Supervisor", "ray::Replica", "ray::Checkpoint", "ray::vLLM", "ray::Kept", *NAMES_OF_ENGINES)
START_ATTEMPTS = 3
RAY_PORTS = (
    "ray-client-server",
    "dashboard-agent-listen",
    "dashboard-agent-grpc",
    "metrics-export",
    "runtime-env-agent",
)
"""Given, because the raylet ends itself where its agents take more than 15 s to find ports of their own."""
ENGINE_ENVIRONMENT = ("VLLM_CPU_KVCACHE_SPACE=1", "OMP_NUM_THREADS=1", "VLLM_CPU_OMP_THREADS_BIND=nobind")


def run_config(directory: Path, model: Path, **rollout: object) -> Path:
    """Write a run configuration for replicas of a tiny model; `rollout` adds to its fields, or replaces them."""
    order = {
        "schema": 1,
        "run": "tiny",
        "namespace": "default",
        "created": "2026-11-21T12:00:00+00:00",
        "output_dir": str(directory / "out"),
        "spec": {
            "model": {"path": str(model)},
            "datasets": [{"name": "ds", "source": "builtin:demo"}],
            "protocol": {"maxNewTokens": 64},
            "rollout": {
                "tensorParallel": 1, "gpusPerNode": 2, "replicas": 2, "dtype": "float32", "maxNumSeqs": 16,
                "promptLength": 448, "enforceEager": True, **rollout,
            },
        },
    }  # fmt: skip
    path = directory / "work-order.json"
    path.write_text(json.dumps(order))
    return path


class RayHead:
    """A Ray cluster of one node, on loopback, behind a token of its own."""

    def __init__(self, python: Path, directory: Path) -> None:
        self.python = python
        self.address = ""
        # Sockets lie below it, and their paths are short. No prefix of a run's own Ray: runs remove what such has left.
        self._temporary = Path(tempfile.mkdtemp(prefix="evalrun-test-ray-", dir="/tmp"))
        self._log = directory / "ray.log"
        self._process: asyncio.subprocess.Process | None = None
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTEST"))},
            "PYTHONPATH": os.pathsep.join(str(source) for source in SOURCES),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # else 15, and a replica's start waits for all tests that run beside it
            "HF_HUB_OFFLINE": "1",
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        }

    async def start(self, gpus: int) -> None:
        """Start; again where Ray gave up by itself: it allows its processes 30 s, which a busy machine may pass."""
        for attempt in range(START_ATTEMPTS):
            if await self._start_once(gpus):
                return
            await self._kill_all()
            print(f"Ray did not start, attempt {attempt + 1}")
        raise RuntimeError(f"Ray did not start: {self._log.read_text()[-2000:]}")

    async def _start_once(self, gpus: int) -> bool:
        port = free_port()
        command = ["-m", "ray.scripts.scripts", "start", "--head", "--block", "--include-dashboard=false"]
        command += [f"--port={port}", "--node-ip-address=127.0.0.1", f"--num-gpus={gpus}", f"--num-cpus={2 * gpus + 2}"]
        command += [f"--{name}-port={free_port()}" for name in RAY_PORTS]
        command += ["--object-store-memory=100000000", f"--temp-dir={self._temporary}", "--disable-usage-stats"]
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(self.python), *command, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )
        while "Ray runtime started" not in self._log.read_text():
            if self._process.returncode is not None:
                return False
            await asyncio.sleep(0.1)  # another process writes the log: there is no event to wait for
        # Ray takes the machine's own address instead of loopback.
        found = re.search(rf"([0-9.]+):{port}\b", self._log.read_text())
        self.address = f"127.0.0.1:{port}" if found is None else found.group(0)
        return True

    async def stop(self) -> None:
        await self._kill_all()
        shutil.rmtree(self._temporary, ignore_errors=True)

    async def _kill_all(self) -> None:
        """Kill what Ray has started: everything below its process, and its orphans."""
        if self._process is not None:
            for process in [*descendants(self._process.pid), self._process.pid]:
                kill(process)
            await self._process.wait()
        for process in processes_with(str(self._temporary)):
            kill(process)

    async def stacks(self) -> str:
        """Return what each process of the replicas does right now: the innermost calls of its threads, by py-spy."""
        found = []
        for pid in [pid for pid in self._processes() if title(pid).startswith(NAMES_OF_REPLICAS)]:
            command = [str(self.python.parent / "py-spy"), "dump", "--pid", str(pid)]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output, _ = await process.communicate()
            threads = output.decode(errors="replace").strip().split("\nThread")
            found += ["\nThread".join("\n".join(thread.splitlines()[:6]) for thread in threads)]
        return "\n".join(found)

    def servers(self) -> list[int]:
        return [pid for pid in self._processes() if title(pid).startswith(("ray::vLLMHttpServer", "ray::KeptServer"))]

    def _processes(self) -> list[int]:
        return [] if self._process is None else descendants(self._process.pid)


@asynccontextmanager
async def ray_head(python: Path, directory: Path, gpus: int = 2, head: RayHead | None = None) -> AsyncIterator[RayHead]:
    """Start a cluster; `head`: one that is not started yet, with an environment of its own."""
    head = head or RayHead(python, directory)
    try:
        await head.start(gpus)
        yield head
    finally:
        await head.stop()


async def make_tiny_model(python: Path, directory: Path, seed: int = 0) -> Path:
    """Make a random Qwen2 of 360,000 parameters with a tokenizer and a chat template."""
    script = ROOT / "benchmarks" / "random_model.py"
    process = await asyncio.create_subprocess_exec(
        str(python), str(script), "--tiny", str(directory), f"--seed={seed}", stderr=sys.stderr
    )
    if await process.wait() != 0:
        raise RuntimeError("no tiny model")
    return directory


class RolloutProcess:
    """A generator with replicas of its own; `start` starts it again, as the operator does in a cluster."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self.process: asyncio.subprocess.Process

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    async def until_logged(self, text: str) -> None:
        while text not in self.log:
            if self.process.returncode is not None:
                raise RuntimeError(f"the rollout ended with {self.process.returncode}: {self.log[-3000:]}")
            await asyncio.sleep(0.1)  # another process writes it: there is no event to wait for

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


async def start_rollout(
    head: RayHead, order: Path, ledger: str, log: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> RolloutProcess:
    command = ["-m", "evalrun_generator.rollout", f"--work-order={order}", f"--ledger={ledger}", "--worker-id=tiny"]
    command += [f"--ray-address={head.address}", "--exit-with-parent", "--report-seconds=0.5", *arguments]
    command += [f"--engine-env={variable}" for variable in ENGINE_ENVIRONMENT]
    rollout = RolloutProcess([str(head.python), *command], {**head.environment, **(environment or {})}, log)
    await rollout.start()
    return rollout


# Linux's /proc, since the environment of these tests has nothing that reads it.


def title(pid: int) -> str:
    """Return a process' command line, which Ray and vLLM set to what it does."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return found


def descendants(pid: int) -> list[int]:
    known = parents()
    found = [pid]
    for ancestor in found:
        found += [child for child, parent in known.items() if parent == ancestor]
    return found[1:]


def processes_with(text: str) -> list[int]:
    return [pid for pid in parents() if pid != os.getpid() and text in title(pid)]


def kill(pid: int) -> None:
    send(pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def engine_of(server: int) -> Sequence[int]:
    return [pid for pid in descendants(server) if title(pid).startswith(NAMES_OF_ENGINES)]
