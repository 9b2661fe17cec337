"""Checks everything that replicas on this machine need, before anything is started or loaded."""

from evalrun_api.v1alpha1 import EvalRunSpec
from evalrun_cli.gpu_host.environment import known_environments
from evalrun_cli.gpu_host.gpus import ChosenGpus, check_free_memory, choose_gpus, find_gpus
from evalrun_cli.gpu_host.interpreter import check_interpreter, find_interpreter
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.gpu_host.replica_fit import fit_spec
from evalrun_runtime.exits import BadInputError


def prepare_replicas(spec: EvalRunSpec, options: GpuOptions, file: str) -> tuple[EvalRunSpec, list[str]]:
    """Return the spec with the replicas that run here, and the flags of `evalrun_generator.gpu_host`.

    Args:
        spec: with `rollout`.
        options: of this machine.
        file: the run's, for messages.

    Raises:
        BadInputError: too few GPUs, or no interpreter with what they need.
    """
    rollout = spec.rollout
    if rollout is None:
        raise BadInputError(f"{file}: spec.rollout is missing: there are no replicas to start")
    if options.ray_address is not None:
        return _joining(spec, options, file)
    chosen = choose_gpus(options.gpus, [] if (options.gpus or "").startswith("cpu") else find_gpus())
    fitted = fit_spec(spec, chosen.count, options.replicas, file)
    if fitted.rollout is not None:
        chosen = first_of(chosen, fitted.rollout.gpus_per_node)
    check_free_memory(chosen.gpus, rollout.gpu_memory_utilization_value)
    python = find_interpreter(options.gpu_python, cpu=chosen.pretended > 0, environments=known_environments())
    check_interpreter(python, rollout.engine)
    return fitted, [
        f"--gpu-python={python}",
        *([f"--gpus={','.join(chosen.indices)}"] if chosen.gpus else [f"--pretended-gpus={chosen.pretended}"]),
    ]


def first_of(chosen: ChosenGpus, count: int) -> ChosenGpus:
    """Return the first `count` GPUs. The others stay free for other users."""
    return ChosenGpus(tuple(chosen.gpus[:count]), min(chosen.pretended, count))


def _joining(spec: EvalRunSpec, options: GpuOptions, file: str) -> tuple[EvalRunSpec, list[str]]:
    """Return the same for a Ray cluster that runs already: it knows its GPUs."""
    if options.gpus is not None:
        raise BadInputError("--gpus: the Ray cluster of --ray-address has its own: leave --gpus away")
    if options.replicas is not None and spec.rollout is not None:
        spec = fit_spec(spec, options.replicas * spec.rollout.gpus_per_replica, options.replicas, file)
    environments = known_environments()
    python = find_interpreter(options.gpu_python, cpu=False, environments=environments)
    check_interpreter(python, "vllm" if spec.rollout is None else spec.rollout.engine)
    return spec, [f"--gpu-python={python}", f"--join-ray={options.ray_address}"]
