"""Joins a Ray cluster as a node of its own that offers nothing, because a driver needs a raylet beside it."""

import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from evalrun_generator.gpu_host.processes import end_process, signal_when_parent_ends
from evalrun_generator.gpu_host.ray_head import STARTED, last_lines
from evalrun_generator.outcomes import GenerationStoppedError

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES: Final = 80_000_000
"""A little more than the minimum that Ray allows: prompts and completions do not go through it."""
ATTEMPTS: Final = 3
START_SECONDS: Final = 180.0
END_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.1


@contextmanager
def join_cluster(address: str, own_ip: str | None) -> Iterator[None]:
    """Be a node of the Ray cluster whose head is at `address`, HOST:PORT, within the context.

    Args:
        address: address of the head.
        own_ip: address of this node; None: Ray chooses.

    Raises:
        GenerationStoppedError: the head does not reply.
    """
    with tempfile.TemporaryDirectory(prefix="evalrun-ray-node-") as directory:
        log = Path(directory) / "ray.log"
        process = _start(address, own_ip, log)
        logger.info("joined the Ray cluster at %s", address)
        try:
            yield
        finally:
            end_process(process, END_SECONDS)


def _start(address: str, own_ip: str | None, log: Path) -> "subprocess.Popen[bytes]":
    """Start the node, and return its process, the ancestor of all of Ray's processes. Raises GenerationStoppedError."""
    # With --block Ray's processes end with this one; `ray stop` would end every Ray of the machine.
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}", "--block"]
    command += ["--num-cpus=0", "--num-gpus=0", f"--object-store-memory={OBJECT_STORE_BYTES}", "--disable-usage-stats"]
    command += [] if own_ip is None else [f"--node-ip-address={own_ip}"]
    # The name of a new head may not be known everywhere yet, so the start is repeated.
    for _ in range(ATTEMPTS):
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                # Without this signal the node would stay if this process were killed.
                preexec_fn=lambda: signal_when_parent_ends(signal.SIGTERM),
            )
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if STARTED in log.read_text(errors="replace"):
                return process
            time.sleep(POLL_SECONDS)
        end_process(process, END_SECONDS)
    last = last_lines(log) or "Ray said nothing"
    raise GenerationStoppedError(f"--ray-join {address}: the cluster cannot be joined: {last}")
