"""Runs a rollout on this machine, from the model's download to the last killed process."""

import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from evalrun_api.run_config import RunConfig
from evalrun_generator.gpu_host.kept_ray import REPLICAS, KeptRay
from evalrun_generator.gpu_host.processes import (
    Descendants,
    StopRequests,
    wait_for,
)
from evalrun_generator.gpu_host.ray_head import RayHead, ray_environment, start_ray
from evalrun_generator.gpu_host.session_directory import (
    END_SECONDS,
    TIMES,
    SessionDirectory,
    own_session,
)
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 2.0
"""Seconds between two checks of the running processes."""
SIGNAL_PAUSE_SECONDS: Final = 0.2
"""Seconds within which two signals of the same number count as one."""
GENERATOR_RESTARTS: Final = 3
ABANDON_SECONDS: Final = 60.0
"""Seconds without a generator after which its replicas in another user's Ray cluster end by themselves. Another
generator starts sooner, and a killed process cannot end them."""
CPU_ENGINE: Final = ("VLLM_CPU_KVCACHE_SPACE=1", "OMP_NUM_THREADS=1", "VLLM_CPU_OMP_THREADS_BIND=nobind")
"""Variables of vLLM's CPU build for a tiny model."""


@dataclass(frozen=True)
class HostPlan:
    """The program to run and its settings."""

    python: Path
    """Interpreter with Ray, verl and the engine."""
    config_file: Path
    config: RunConfig
    logs: Path
    gpus: Sequence[str] = ()
    """GPUs in the form of CUDA_VISIBLE_DEVICES."""
    pretended_gpus: int = 0
    """GPUs that Ray pretends to have, for the CPU build."""
    ray_address: str | None = None
    """Address of a running cluster; None: a cluster is started."""
    kept_ray: KeptRay | None = None
    """The running cluster, if it was started here for several runs and its replicas outlive each run."""
    generator_flags: Sequence[str] = ()


@dataclass
class HostTimes:
    """Seconds of each step before the generator starts."""

    download_seconds: float | None = None
    ray_seconds: float | None = None
    _now: Callable[[], float] = field(default=time.monotonic, repr=False)

    def write(self, logs: Path) -> None:
        """Store the known times."""
        known = {"download_seconds": self.download_seconds, "ray_seconds": self.ray_seconds}
        content = {name: round(value, 2) for name, value in known.items() if value is not None}
        write_atomically(logs / TIMES, json.dumps(content).encode() + b"\n")


class GpuHost:
    """Runs a rollout, and ends everything that it has started, whatever the outcome."""

    def __init__(self, plan: HostPlan, stops: StopRequests) -> None:
        self._plan = plan
        self._stops = stops
        self._times = HostTimes()
        self._seen = Descendants()

    def run(self) -> int:
        """Run to the end. Return the generator's exit code, or STOPPED after a signal.

        Raises:
            BadInputError: the model cannot be downloaded.
            GenerationStoppedError: Ray does not start, or the generator does not stay alive.
        """
        code: int = ExitCode.FAILED
        with own_session(self._seen) as directory:
            try:
                code = self._run_in(directory)
                return code
            finally:
                if code not in (ExitCode.SUCCEEDED, ExitCode.STOPPED):
                    keep_ray_logs(directory, self._plan.logs)

    def _run_in(self, directory: SessionDirectory) -> int:
        flags = self._model_flags(directory)
        if flags is None:
            return ExitCode.STOPPED
        head = self._ray(directory)
        self._times.write(self._plan.logs)
        return ExitCode.STOPPED if head is None else self._generate(head, flags)

    def _ray(self, directory: SessionDirectory) -> RayHead | None:
        plan = self._plan
        if plan.kept_ray is not None:
            base = ray_environment(os.environ, plan.python, directory, ())
            return RayHead(plan.kept_ray.address, {**base, **plan.kept_ray.environment})
        if plan.ray_address is not None:
            return RayHead(plan.ray_address, make_joining_environment(os.environ, directory))
        logger.info("starting Ray with %d GPUs", len(plan.gpus) or plan.pretended_gpus)
        began = time.monotonic()
        log = plan.logs / "ray.log"
        head = start_ray(plan.python, directory, plan.gpus, plan.pretended_gpus, log, self._stops)
        self._times.ray_seconds = time.monotonic() - began
        return head

    def _model_flags(self, directory: SessionDirectory) -> list[str] | None:
        """Return the flags that name the directories of model and adapter; None: this process was asked to end."""
        model, flags = self._plan.config.spec.model, []
        dummy = self._plan.config.spec.rollout is not None and self._plan.config.spec.rollout.load_format == "dummy"
        for flag, place, revision in (
            ("--model-folder", model.path, model.revision), ("--adapter-folder", model.adapter, None),
        ):  # fmt: skip
            if place is None:
                continue
            if Path(place).is_dir():
                flags.append(f"{flag}={Path(place).resolve()}")
            elif "://" not in place and not dummy:
                found = self._download(directory, place, revision)
                if found is None:
                    return None
                flags.append(f"{flag}={found}")
        return flags

    def _download(self, directory: SessionDirectory, model: str, revision: str | None) -> str | None:
        logger.info("looking for %s in the hub's cache, else downloading it", model)
        began = time.monotonic()
        environment = {**ray_environment(os.environ, self._plan.python, directory, ()), "CUDA_VISIBLE_DEVICES": ""}
        command = [str(self._plan.python), "-m", "evalrun_generator.gpu_host.model_download", model]
        command += [] if revision is None else [revision]
        errors = self._plan.logs / "download.log"
        with errors.open("wb") as file:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=environment)
        while wait_for(process, self._stops) is None:
            if self._stops.is_asked:
                return None
        lines = (process.stdout.read() if process.stdout else b"").decode().splitlines()
        self._times.download_seconds = (self._times.download_seconds or 0.0) + time.monotonic() - began
        if process.returncode != 0 or not lines:
            said = errors.read_text(errors="replace").strip().splitlines()
            raise BadInputError((said[-1] if said else f"{model}: not downloaded").removeprefix("evalrun: "))
        return lines[-1]

    def _generate(self, head: RayHead, flags: Sequence[str]) -> int:
        """Run the generator to its end. A killed generator is replaced by another, which takes its replicas over."""
        command = [str(self._plan.python), "-m", "evalrun_generator.rollout", f"--work-order={self._plan.config_file}"]
        command += [f"--ray-address={head.address}", "--end-replicas", *flags, *self._plan.generator_flags]
        kept = self._plan.kept_ray
        command += [] if kept is None else [f"--keep-replicas={REPLICAS}"]
        if kept is None and self._plan.ray_address is not None:
            command += [f"--abandon-seconds={ABANDON_SECONDS:g}"]
        if self._plan.pretended_gpus or (kept is not None and kept.pretended_gpus):
            command += [f"--engine-env={variable}" for variable in CPU_ENGINE]
        environment = {**SERVICE_ENVIRONMENT, **head.environment}
        for attempt in range(1 + GENERATOR_RESTARTS):
            if attempt:
                logger.warning("the generator was killed: starting it again")
            process = subprocess.Popen([*command, "--exit-with-parent"], stdin=subprocess.DEVNULL, env=environment)
            code = self._wait(process)
            if code >= 0 or self._stops.is_asked:
                return code if code >= 0 else ExitCode.STOPPED
        raise GenerationStoppedError(f"the generator was ended by {signal.Signals(-code).name}, again and again")

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait for the generator's end, and forward requests to end."""
        told = False
        while (code := wait_for(process, self._stops, WATCH_SECONDS)) is None:
            self._seen.look()
            if self._stops.is_urgent:
                return self._hurry(process)
            if self._stops.is_asked and not told:
                process.terminate()
                told = True
        return code

    def _hurry(self, process: "subprocess.Popen[bytes]") -> int:
        """End the generator at once. In a cluster that outlives this run, it ends its replicas first."""
        if self._plan.ray_address is not None:
            # The second signal means that the generator must not wait for requests.
            for _ in range(2):
                process.terminate()
                time.sleep(SIGNAL_PAUSE_SECONDS)
            try:
                return process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                logger.error("the replicas at %s were not ended", self._plan.ray_address)
        process.kill()
        return process.wait()


def make_joining_environment(base: Mapping[str, str], directory: SessionDirectory) -> dict[str, str]:
    """Return the environment of a generator that joins a Ray cluster: its actors find our packages. Pure."""
    code = str(directory.code)
    job = {"runtime_env": {"env_vars": {"PYTHONPATH": code}}}
    kept = {name: value for name, value in base.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": code, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(job)}


def keep_ray_logs(directory: SessionDirectory, logs: Path) -> None:
    """Copy the logs of Ray's processes into the run's logs, because they explain why an engine did not start."""
    target = logs / "ray"
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(directory.path.glob("session_2*/logs/*")):
        if path.is_file() and path.stat().st_size:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / path.name)
