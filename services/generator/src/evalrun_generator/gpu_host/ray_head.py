"""Starts a Ray cluster on this machine only, behind its own token."""

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
"""Line that `ray start --block` of 2.60 prints once the cluster may be joined."""
LOOPBACK: Final = "127.0.0.2"
"""Ray replaces 127.0.0.1 by the machine's own address, where others could reach the replicas' servers, but keeps this
address."""
PORTS: Final = (
    "ray-client-server",
    "dashboard-agent-listen",
    "dashboard-agent-grpc",
    "metrics-export",
    "runtime-env-agent",
)
"""Fixed ports, because the raylet ends itself if its agents take more than 15 s to find free ports."""
OBJECT_STORE_BYTES: Final = 200_000_000
"""Replicas exchange no large objects."""


@dataclass(frozen=True)
class RayHead:
    """A running Ray cluster."""

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
        directory: directory of this Ray.
        gpus: visible GPUs in the form of CUDA_VISIBLE_DEVICES; empty: the variable is unset, because Ray pretends no
            more GPUs than it names.
    """
    dropped = ("PYTHON", "RAY_ADDRESS", "RAY_AUTH_", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES")
    kept = {name: value for name, value in base.items() if not name.startswith(dropped)}
    return {
        **kept,
        "PYTHONPATH": str(directory.code),
        "PATH": f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}",
        "TMPDIR": str(directory.temporary),
        # GPUs are numbered as nvidia-smi numbers them.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # The default is 15, and a replica's start would wait for everything else on this machine.
        "RAY_worker_niceness": "0",
    }


def start_ray(
    python: Path, directory: SessionDirectory, gpus: Sequence[str], pretended: int, log: Path, stops: StopRequests
) -> RayHead | None:
    """Start Ray. Return None if this process was asked to end meanwhile.

    Args:
        python: the interpreter with Ray.
        directory: directory for Ray's files.
        gpus: GPUs that Ray may use.
        pretended: GPUs that Ray only pretends to have, without real GPUs.
        log: gets Ray's output.
        stops: requests to end this process.

    Raises:
        GenerationStoppedError: Ray did not start.
    """
    environment = ray_environment(os.environ, python, directory, gpus)
    count = len(gpus) or pretended
    # Another process may take a port that was free, so the start is repeated.
    for _ in range(START_ATTEMPTS):
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
    """Return the last lines of Ray's output in one line; empty without output."""
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])


def _spawn(
    python: Path, directory: SessionDirectory, gpus: int, port: int, log: Path, environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    command = [str(python), "-m", "ray.scripts.scripts", "start", "--head", "--block", "--include-dashboard=false"]
    # verl needs 2 CPUs per GPU, and a server needs a further CPU while it is placed. The number is logical, whatever
    # the machine has.
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
            # If this process is killed, Ray ends its cluster by itself.
            preexec_fn=lambda: signal_when_parent_ends(signal.SIGTERM),
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])
