"""Obstacles to a run's start that somebody must fix, and when the run fails because of them. Pure."""

from datetime import timedelta

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType, find_condition
from evalrun_operator.lifecycle.situation import ReconcileContext
from evalrun_operator.observation.records import ObservedCluster
from evalrun_operator.policies.refusals import explain_lasting_refusal
from evalrun_operator.policies.start import NO_KUBERAY, RAY_KINDS, gives_up_at, obstacles

SETTLE_SECONDS = 15.0
"""Minimum age in seconds of an object whose trouble counts: nearly every new pod waits a moment for its claim."""


def obstacle_to_start(context: ReconcileContext, waits: str) -> str:
    """Return what prevents the run from starting until somebody fixes it; empty if no obstacle is known."""
    observed = context.observed
    parts = [names.AGGREGATOR, names.JUDGE, names.SANDBOX] if waits else []
    if not context.generated:
        cluster = next((seen.detail for seen in observed.find_by_kind("RayCluster") if not seen.deleting), None)
        if isinstance(cluster, ObservedCluster) and not cluster.usable and not cluster.suspended:
            parts.append(names.RAY)
        if any(not pod.ready and not pod.ended for _, pod in observed.pods(names.GENERATOR)) or not observed.pods(
            names.GENERATOR
        ):
            parts.append(names.GENERATOR)
    unserved = context.run.spec.rollout is not None and not context.generated and observed.missing_kinds & RAY_KINDS
    refusal = explain_lasting_refusal(context.before, observed.write_failures) if waits or not context.generated else ""
    settled = context.now - timedelta(seconds=SETTLE_SECONDS)
    found = obstacles(observed.trouble_list(*parts, made_before=settled, with_ended=False))
    return "; ".join([*([NO_KUBERAY] if unserved else []), *([refusal] if refusal else []), *found][:3])


def explain_stall(context: ReconcileContext, waits: str) -> str:
    """Return the text of the condition Stalled: the cause, and when the run will fail."""
    cause = obstacle_to_start(context, waits)
    if not cause:
        return ""
    was = find_condition(context.before, ConditionType.STALLED)
    since = was.last_transition_time if was is not None and was.status == "True" else context.now
    end = gives_up_at(since, context.settings.start_deadline_seconds)
    return cause if end is None else f"{cause}. The run fails at {end:%Y-%m-%dT%H:%M:%SZ} unless it is mended."
