"""The actor that owns a replica. Runs inside the Ray cluster and needs only verl 0.9.1.

verl detaches nothing, so everything this actor creates (placement group, workers, HTTP server) ends with it: killing it
tears the replica down. `init_standalone` waits for its placement group in a blocking call that nothing can interrupt,
which is the second reason for a separate actor.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from evalrun_generator.rollout.adapter import adapter_facts, adapter_rank
from evalrun_generator.rollout.engine import EnginePlan
from evalrun_generator.rollout.engine_facts import engine_facts, model_facts, sglang_facts
from evalrun_generator.rollout.vllm_start_times import TEXTS, read_own_start_times
from evalrun_generator.weights.checkpoint_files import UnfitCheckpointError

logger = logging.getLogger(__name__)

Handle: TypeAlias = Any
"""An actor's handle, or the reference to a call's result; Ray does not type them."""
OF_ONE_CHECKPOINT: Final = frozenset({*TEXTS, "weights_sha256", "model_revision"})
"""Facts of an engine that its next checkpoint does not share."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a replica; the start time distinguishes it from a later process with the same id."""

    pid: int
    created: float


@dataclass(frozen=True, slots=True)
class Launched:
    """A replica whose HTTP server is up."""

    address: str
    load_format: str
    processes: tuple[tuple[str, tuple[Process, ...]], ...]
    """Processes of the HTTP server and its engine, by Ray node."""
    engine: Mapping[str, str]
    """See `engine_facts`."""


class ReplicaLauncher:
    """Launches and owns a replica."""

    def __init__(self, plan: EnginePlan, slot: int, suffix: str) -> None:
        self._plan = plan
        self._slot = slot
        self._suffix = suffix
        self._replica: Handle = None
        self._launched: Launched | None = None

    async def launch(self) -> Launched:
        """Launch the replica and wait until its HTTP server is up. Raises the errors of verl and the engine."""
        from omegaconf import OmegaConf
        from verl.workers.config import RolloutConfig
        from verl.workers.rollout.replica import get_rollout_replica_class

        replica_class = get_rollout_replica_class(self._plan.engine)
        adapter = None if self._plan.adapter is None else Path(self._plan.adapter)
        # With a rank verl enables LoRA in the engine; it becomes known only here, where the adapter's directory is.
        lora = {} if adapter is None else {"lora_rank": adapter_rank(adapter)}
        model = OmegaConf.create({"_target_": "verl.workers.config.HFModelConfig", **self._plan.model_config, **lora})
        self._replica = replica_class(
            replica_rank=self._slot,
            config=RolloutConfig(**self._plan.rollout_config),
            model_config=model,
            gpus_per_node=self._plan.gpus_per_node,
            name_suffix=self._suffix,
        )
        server_class = _import_server_class(self._plan)
        if server_class is not None:
            import ray

            self._replica.server_class = ray.remote(server_class)
        await self._replica.init_standalone()
        servers = self._replica.servers
        engine = self._plan.engine
        told = await asyncio.gather(*(server.__ray_call__.remote(_describe_server, engine) for server in servers))
        processes = tuple((node, found) for node, found, _, _ in told)
        load_format, facts = told[0][2], dict(told[0][3])
        if engine == "sglang":
            reported = await servers[0].evalrun_report.remote()
            load_format, facts = str(reported["load_format"]), facts | sglang_facts(reported)
        revision = self._plan.revision
        facts |= await asyncio.to_thread(model_facts, facts.get("model", str(model.path)), revision)
        if adapter is not None:
            facts |= await asyncio.to_thread(adapter_facts, adapter)
        if self._plan.kept is not None:
            facts |= await self._prove(self._plan.directory, self._plan.kept.weights)
        self._launched = Launched(self._replica.server_address, load_format, processes, facts)
        return self._launched

    async def _prove(self, directory: Path, weights: str) -> dict[str, str]:
        """Compare the loaded weights with their files. Return `weights_kept: false` if the engine takes no others."""
        import ray

        try:
            return dict(await self._replica.servers[0].evalrun_prove.remote(str(directory), weights))
        except ray.exceptions.RayTaskError as error:
            logger.warning("this engine takes no other weights: %s", str(error).strip().splitlines()[-1])
            return {"weights_kept": "false"}

    async def replace_weights(self, directory: str, weights: str) -> Launched:
        """Put another checkpoint into the engine, prove it, and serve it as `weights`.

        After any exception the replica no longer replies, and must be ended.
        """
        if self._launched is None or self._launched.engine.get("weights_kept") == "false":
            raise UnfitCheckpointError("the engine takes no other weights")
        steps = await self._replica.servers[0].evalrun_replace.remote(directory, weights)
        kept = {name: value for name, value in self._launched.engine.items() if name not in OF_ONE_CHECKPOINT}
        self._launched = replace(self._launched, engine={**kept, **steps})
        return self._launched


def _import_server_class(plan: EnginePlan) -> type | None:
    """Return the class of the HTTP server; None: verl's own class."""
    if plan.engine == "sglang":
        from evalrun_generator.rollout.sglang_server import SglangServer

        return SglangServer
    if plan.kept is not None:
        from evalrun_generator.weights.kept_server import KeptServer

        return KeptServer
    return None


def _describe_server(server: Handle, engine: str) -> tuple[str, tuple[Process, ...], str, dict[str, str]]:
    """Return node, processes, load format and engine facts of an HTTP server actor. Runs inside that actor."""
    import psutil
    import ray

    own = psutil.Process(os.getpid())
    family = [own, *own.children(recursive=True)]
    processes = tuple(Process(process.pid, process.create_time()) for process in family)
    # This is vLLM's record of the loaded model, not of the requested one. SGLang has its record in another process: see
    # `SglangServer`.
    engine_config = getattr(getattr(server, "engine", None), "vllm_config", None)
    load_format = "" if engine_config is None else engine_config.load_config.load_format
    loaded = str(getattr(load_format, "value", load_format))
    facts = engine_facts(engine, engine_config) | (read_own_start_times() if engine == "vllm" else {})
    return ray.get_runtime_context().get_node_id(), processes, loaded, facts


def reap(processes: tuple[Process, ...]) -> int:
    """Kill a replica's remaining processes and return how many there were. Runs on their node.

    A stopped or hung engine does not notice that its parent is gone, and keeps the GPU's memory.
    """
    import psutil

    killed = 0
    for process in processes:
        try:
            found = psutil.Process(process.pid)
            if abs(found.create_time() - process.created) < 1.0:
                found.kill()
                killed += 1
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return killed
