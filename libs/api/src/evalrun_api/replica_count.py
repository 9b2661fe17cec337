"""The number of replicas for a run's pending work: the formula that operator and generator share. Pure."""

from evalrun_api.v1alpha1.model_servers import Rollout


def count_wanted_replicas(rollout: Rollout, pending: int | None) -> int:
    """Return the replicas: fixed, or between min and max as many as the pending work fills.

    Args:
        rollout: the spec's.
        pending: answers still to be drawn; None if unknown.
    """
    if rollout.min_replicas is None or rollout.max_replicas is None or pending is None:
        return rollout.initial_replicas
    filled = -(-pending // rollout.max_num_seqs)
    return min(max(filled, rollout.min_replicas), rollout.max_replicas)
