"""The owner of one replica, as an actor: verl 0.9.1 and nothing else of ours. Runs inside the Ray cluster.

verl detaches nothing, so what this actor makes (placement group, workers, HTTP server) ends with it: killing it is the
replica's teardown. `init_standalone` waits for its placement group in a blocking call that nothing can interrupt, which
is the other reason for an actor of its own.
"""

import asyncio
import os
from dataclasses import dataclass
from typing import Any, TypeAlias

from evalrun_generator.rollout.engine import EnginePlan

Handle: TypeAlias = Any
"""An actor's handle, or the reference to a call's result: Ray gives them no types."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a replica, told from a later one of the same number."""

    pid: int
    created: float


@dataclass(frozen=True, slots=True)
class Launched:
    """A replica whose HTTP server is up."""

    address: str
    load_format: str
    processes: tuple[tuple[str, tuple[Process, ...]], ...]
    """By Ray node: the HTTP server's process and its engine's."""


class ReplicaLauncher:
    """Launches one replica and owns it."""

    def __init__(self, plan: EnginePlan, slot: int, suffix: str) -> None:
        self._plan = plan
        self._slot = slot
        self._suffix = suffix
        self._replica: Handle = None

    async def launch(self) -> Launched:
        """Launch the replica; returns when its HTTP server is up. Raises whatever verl and the engine raise."""
        from omegaconf import OmegaConf
        from verl.workers.config import RolloutConfig
        from verl.workers.rollout.replica import get_rollout_replica_class

        replica_class = get_rollout_replica_class(self._plan.engine)
        model = OmegaConf.create({"_target_": "verl.workers.config.HFModelConfig", **self._plan.model_config})
        self._replica = replica_class(
            replica_rank=self._slot,
            config=RolloutConfig(**self._plan.rollout_config),
            model_config=model,
            gpus_per_node=self._plan.gpus_per_node,
            name_suffix=self._suffix,
        )
        await self._replica.init_standalone()
        servers = self._replica.servers
        told = await asyncio.gather(*(server.__ray_call__.remote(_describe_server) for server in servers))
        processes = tuple((node, found) for node, found, _ in told)
        return Launched(self._replica.server_address, told[0][2], processes)


def _describe_server(server: Handle) -> tuple[str, tuple[Process, ...], str]:
    """Give node, processes and load format of an HTTP server actor; runs inside it."""
    import psutil
    import ray

    own = psutil.Process(os.getpid())
    family = [own, *own.children(recursive=True)]
    processes = tuple(Process(process.pid, process.create_time()) for process in family)
    # vLLM's own record of how it loaded, not what it was asked. SGLang's server keeps none in reach.
    engine_config = getattr(getattr(server, "engine", None), "vllm_config", None)
    load_format = "" if engine_config is None else engine_config.load_config.load_format
    return ray.get_runtime_context().get_node_id(), processes, str(getattr(load_format, "value", load_format))


def reap(processes: tuple[Process, ...]) -> int:
    """Kill what of a replica's processes is still there; gives how many. Runs on their node.

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
