"""Starts a Ray cluster of this machine alone, behind a token of its own."""

import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_generator.gpu_host.processes import StopRequests, signal_when_parent_ends, wait_for
from evalrun_generator.gpu_host.session_directory import SessionDirectory
from evalrun_generator.outcomes import GenerationStoppedError

START_ATTEMPTS: Final = 3
START_SECONDS: Final = 180.0
POLL_SECONDS: Final = 0.1
STARTED: Final = "Ray runtime started"
"""What `ray start --block` of 2.60 prints once the cluster may be joined."""
LOOPBACK: Final = "127.0.0.2"
"""Ray replaces 127.0.0.1 by the machine's own address, where others could reach the replicas' servers; not this one."""
PORTS: Final = (
    "ray-client-server",
    "dashboard-agent-listen",
    "dashboard-agent-grpc",
    "metrics-export",
    "runtime-env-agent",
)
"""Given, because the raylet ends itself where its agents take more than 15 s to find ports of their own."""
OBJECT_STORE_BYTES: Final = 200_000_000
"""Replicas exchange no large objects."""


@dataclass(frozen=True)
class RayHead:
    """A Ray cluster that runs."""

    address: str
    environment: Mapping[str, str]
    """Environment of its processes and of its drivers."""


def ray_environment(
    base: Mapping[str, str], python: Path, directory: SessionDirectory, gpus: Sequence[str]
) -> dict[str, str]:
    """Return the environment of Ray's processes. Pure except for the token.

    Args:
        base: this process's environment.
        python: the interpreter with Ray; its directory comes first in PATH.
        directory: of this Ray.
        gpus: visible GPUs, as CUDA_VISIBLE_DEVICES names them; none: the variable is unset, since Ray pretends no more
            GPUs than it names.
    """
    dropped = ("PYTHON", "RAY_ADDRESS", "RAY_AUTH_", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES")
    kept = {name: value for name, value in base.items() if not name.startswith(dropped)}
    return {
        **kept,
        "PYTHONPATH": str(directory.code),
        "PATH": f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}",
        "TMPDIR": str(directory.temporary),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi numbers them
        **({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else 15, and a replica's start waits for whatever else this machine does
    }


def start_ray(
    python: Path, directory: SessionDirectory, gpus: Sequence[str], pretended: int, log: Path, stops: StopRequests
) -> RayHead | None:
    """Start Ray; return None if this process was asked to end meanwhile.

    Args:
        python: the interpreter with Ray.
        directory: for Ray's files.
        gpus: those that it may use.
        pretended: GPUs that it only pretends to have, if there are none.
        log: gets Ray's output.
        stops: of this process.

    Raises:
        GenerationStoppedError: Ray did not start.
    """
    environment = ray_environment(os.environ, python, directory, gpus)
    count = len(gpus) or pretended
    for _ in range(START_ATTEMPTS):  # another process may take a port that was free
        port = _free_port()
        process = _spawn(python, directory, count, port, log, environment)
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            found = re.search(rf"([0-9.]+):{port}\b", text) if STARTED in (text := log.read_text()) else None
            if found is not None:
                return RayHead(found.group(0), environment)
            wait_for(process, stops, POLL_SECONDS)
            if stops.is_asked:
                return None
        process.kill()
        process.wait()
    last = last_lines(log) or "it said nothing"
    raise GenerationStoppedError(f"Ray did not start on this machine: {last} (log: {log})")


def last_lines(log: Path) -> str:
    """Return what Ray said last, in one line; empty where it said nothing."""
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])


def _spawn(
    python: Path, directory: SessionDirectory, gpus: int, port: int, log: Path, environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    command = [str(python), "-m", "ray.scripts.scripts", "start", "--head", "--block", "--include-dashboard=false"]
    # 2 CPUs per GPU are verl's, one more is that of a server while it is placed: logical ones, whatever there is here.
    command += [f"--port={port}", f"--node-ip-address={LOOPBACK}", f"--num-gpus={gpus}", f"--num-cpus={2 * gpus + 2}"]
    command += [f"--{name}-port={_free_port()}" for name in PORTS]
    command += [f"--object-store-memory={OBJECT_STORE_BYTES}", f"--temp-dir={directory.path}", "--disable-usage-stats"]
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=dict(environment),
            start_new_session=True,
            # Were this process killed, Ray would end its cluster by itself.
            preexec_fn=lambda: signal_when_parent_ends(signal.SIGTERM),
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])
