"""Status texts about a run's autoscalers: that they scale, or why they do not and what to do. Pure."""

from datetime import timedelta

from evalrun_api import names
from evalrun_api.v1alpha1 import Reason
from evalrun_operator.lifecycle.situation import ReconcileContext, judge_rests
from evalrun_operator.observation.records import Scaler
from evalrun_operator.policies.generation import ConditionText
from evalrun_operator.settings import AutoscalingMode

MEASURED_BY: dict[AutoscalingMode, str] = {"cpu": "metrics.k8s.io", "custom": "external.metrics.k8s.io"}
"""By the operator's mode, the API group that a HorizontalPodAutoscaler asks. KEDA brings its own."""
INSTALL: dict[str, str] = {
    "metrics.k8s.io": "Install metrics-server, or set operator.autoscaling to keda.",
    "external.metrics.k8s.io": "Install a metrics adapter that offers evalrun_judge_load, or set operator.autoscaling "
    "to cpu or keda.",
}
SETTLE_SECONDS = 120.0
"""Seconds for which an autoscaler may lack metrics: a new pod has no measurements yet."""


def unmeasured(context: ReconcileContext) -> str:
    """Return the API group without which no autoscaler of this mode can work, if the cluster lacks it; else empty.

    An autoscaler that is made all the same records an event every 15 s, and scales nothing.
    """
    group = MEASURED_BY.get(context.settings.autoscaling, "")
    return group if group in context.observed.missing_groups else ""


def scaling(context: ReconcileContext) -> ConditionText | None:
    """Return what the condition ScalingActive says; None for a run whose judge has a fixed size, or rests."""
    judge = context.run.spec.own_judge
    if judge is None or judge_rests(context):
        return None
    sizes = ((part.min_replicas, part.max_replicas) for part in (judge.gateway, judge.sandbox))
    if all(least >= most for least, most in sizes):
        return None
    group = unmeasured(context)
    stays = "Until then its judge keeps its smallest size, and the run goes on."
    if group:
        message = f"The cluster serves no {group}. {INSTALL[group]} {stays}"
        return ConditionText(status=False, reason=Reason.NOT_MEASURED, message=message)
    if context.settings.autoscaling == "keda" and "ScaledObject" in context.observed.missing_kinds:
        message = f"The cluster serves no ScaledObject. Install KEDA, or set operator.autoscaling to cpu. {stays}"
        return ConditionText(status=False, reason=Reason.NOT_MEASURED, message=message)
    for seen in context.observed.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        scaler = seen.detail
        if not isinstance(scaler, Scaler) or not scaler.trouble or seen.component not in {names.JUDGE, names.SANDBOX}:
            continue
        if scaler.since is None or context.now - scaler.since >= timedelta(seconds=SETTLE_SECONDS):
            remedy = INSTALL.get(MEASURED_BY.get(context.settings.autoscaling, ""), "See to KEDA and its Prometheus.")
            message = f"{seen.ref.kind} {seen.ref.name}: {scaler.trouble.rstrip('.')}. {remedy}"
            return ConditionText(
                status=False, reason=Reason.NOT_MEASURED, message=f"{message} The run goes on at the size it has."
            )
    return ConditionText(status=True, reason=Reason.MEASURED, message="")
