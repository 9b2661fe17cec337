"""Computes how many of a spec's replicas fit this machine's GPUs. Pure."""

from evalrun_api.v1alpha1 import EvalRunSpec, Rollout
from evalrun_runtime.exits import BadInputError


def fit_rollout(rollout: Rollout, gpus: int, replicas: int | None, where: str) -> Rollout:
    """Return the rollout for one machine: a fixed number of replicas on a node with their GPUs.

    Args:
        rollout: rollout of the file.
        gpus: GPUs that may be used.
        replicas: number of replicas that a flag asks for; None: as many as the file names.
        where: the file's name, for messages.

    Raises:
        BadInputError: there are fewer GPUs than asked for.
    """
    each = rollout.gpus_per_replica
    here = f"this machine gives {gpus} GPU{'s' * (gpus != 1)}"
    fitting = gpus // each
    if not fitting:
        raise BadInputError(
            f"{where}: spec.rollout: a replica takes {each} GPUs (tensorParallel x dataParallel), and {here}: write a "
            f"smaller tensorParallel if the model fits"
        )
    if replicas is not None and replicas > fitting:
        raise BadInputError(f"--replicas {replicas}: they take {replicas * each} GPUs, and {here}: write {fitting}")
    wanted = replicas or (rollout.min_replicas if rollout.elastic else None) or rollout.initial_replicas
    if wanted > fitting:
        raise BadInputError(
            f"{where}: spec.rollout asks for {wanted} replicas of {each} GPUs, {wanted * each} in all, and {here}: add "
            f"--replicas {fitting} to go on with {fitting}"
        )
    count = min(rollout.max_replicas or wanted, fitting) if rollout.elastic and replicas is None else wanted
    fields = rollout.to_wire() | {"replicas": count, "gpusPerNode": count * each}
    # These fields belong to a cluster.
    for name in ("minReplicas", "maxReplicas", "queueName"):
        fields.pop(name, None)
    return Rollout.model_validate(fields)


def fit_spec(spec: EvalRunSpec, gpus: int, replicas: int | None, where: str) -> EvalRunSpec:
    """Return the spec with the replicas for one machine. Raises BadInputError."""
    if spec.rollout is None:
        return spec
    return spec.model_copy(update={"rollout": fit_rollout(spec.rollout, gpus, replicas, where)})
