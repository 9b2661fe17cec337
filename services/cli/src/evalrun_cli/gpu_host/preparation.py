"""Checks everything that replicas on this machine need, before anything is started or loaded."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from evalrun_api.v1alpha1 import EvalRunSpec
from evalrun_cli.gpu_host.environment import known_environments
from evalrun_cli.gpu_host.gpus import ChosenGpus, check_free_memory, choose_gpus, find_gpus
from evalrun_cli.gpu_host.interpreter import check_interpreter, find_interpreter
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.gpu_host.ray_address import check_ray_address
from evalrun_cli.gpu_host.replica_fit import fit_spec
from evalrun_generator.gpu_host.kept_ray import KEPT
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class PreparedReplicas:
    """Replicas that this machine, or a running Ray cluster, can start."""

    spec: EvalRunSpec
    """Spec of the run, with as many replicas as fit."""
    python: Path
    """Interpreter with Ray, verl and the engine."""
    gpus: tuple[str, ...] = ()
    """GPUs of the replicas, as nvidia-smi numbers them; empty: they are pretended, or the Ray cluster's."""
    pretended: int = 0
    ray_address: str | None = None
    """Address of the Ray cluster to join; None: a cluster is started here."""

    @property
    def flags(self) -> list[str]:
        """Flags of `evalrun_generator.gpu_host` for these replicas."""
        if self.ray_address is not None:
            return [f"--gpu-python={self.python}", f"--join-ray={self.ray_address}"]
        where = f"--gpus={','.join(self.gpus)}" if self.gpus else f"--pretended-gpus={self.pretended}"
        return [f"--gpu-python={self.python}", where]

    def one_by_one(self) -> "list[PreparedReplicas]":
        """Return each replica by itself, with GPUs of its own."""
        rollout = self.spec.rollout
        if rollout is None:
            return [self]
        each = rollout.gpus_per_replica
        spec = fit_spec(self.spec, each, 1, "")
        pretended = min(self.pretended, each)
        return [
            replace(self, spec=spec, gpus=self.gpus[number * each : (number + 1) * each], pretended=pretended)
            for number in range((len(self.gpus) or self.pretended) // each)
        ]


def prepare_replicas(spec: EvalRunSpec, options: GpuOptions, file: str) -> PreparedReplicas:
    """Return the replicas of a spec that run here.

    Args:
        spec: a spec with `rollout`.
        options: the user's options for this machine.
        file: file of the run, for messages.

    Raises:
        BadInputError: too few GPUs, or no suitable interpreter.
    """
    rollout = spec.rollout
    if rollout is None:
        raise BadInputError(f"{file}: spec.rollout is missing: there are no replicas to start")
    if options.ray_address is not None:
        return _prepare_on_cluster(spec, options, file)
    chosen = choose_gpus(options.gpus, [] if (options.gpus or "").startswith("cpu") else find_gpus())
    fitted = fit_spec(spec, chosen.count, options.replicas, file)
    if fitted.rollout is not None:
        chosen = select_first_gpus(chosen, fitted.rollout.gpus_per_node)
    check_free_memory(chosen.gpus, rollout.gpu_memory_utilization_value)
    python = find_interpreter(options.gpu_python, cpu=chosen.pretended > 0, environments=known_environments())
    check_interpreter(python, rollout.engine)
    return PreparedReplicas(fitted, python, tuple(chosen.indices), chosen.pretended)


def select_first_gpus(chosen: ChosenGpus, count: int) -> ChosenGpus:
    """Return the first `count` GPUs. The others stay free for other users."""
    return ChosenGpus(tuple(chosen.gpus[:count]), min(chosen.pretended, count))


def _prepare_on_cluster(spec: EvalRunSpec, options: GpuOptions, file: str) -> PreparedReplicas:
    """Return the replicas of a spec for a running Ray cluster, which knows its GPUs."""
    if options.gpus is not None:
        raise BadInputError("--gpus: the Ray cluster of --ray-address has its own: leave --gpus away")
    if options.ray_address is not None and not options.ray_address.startswith(KEPT):
        check_ray_address(options.ray_address, uses_tls=os.environ.get("RAY_USE_TLS", "0") not in ("", "0"))
    if options.replicas is not None and spec.rollout is not None:
        spec = fit_spec(spec, options.replicas * spec.rollout.gpus_per_replica, options.replicas, file)
    environments = known_environments()
    python = find_interpreter(options.gpu_python, cpu=False, environments=environments)
    check_interpreter(python, "vllm" if spec.rollout is None else spec.rollout.engine)
    return PreparedReplicas(spec, python, ray_address=options.ray_address)
