"""Status texts about a run's autoscalers: whether they scale, or why not and how to fix it. Pure."""

from collections.abc import Sequence
from datetime import timedelta

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType, Reason, find_condition
from evalrun_operator.lifecycle.situation import ReconcileContext, judge_rests
from evalrun_operator.observation.records import Scaler
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.settings import AutoscalingMode

MEASURED_BY: dict[AutoscalingMode, str] = {"cpu": "metrics.k8s.io", "custom": "external.metrics.k8s.io"}
"""API group from which a HorizontalPodAutoscaler gets its metrics, by the operator's mode. KEDA brings its own."""
INSTALL: dict[str, str] = {
    "metrics.k8s.io": "Install metrics-server, or set operator.autoscaling to keda.",
    "external.metrics.k8s.io": "Install a metrics adapter that offers evalrun_judge_load, or set operator.autoscaling "
    "to cpu or keda.",
}
SEE_TO_KEDA = "See to KEDA and its Prometheus."
SETTLE_SECONDS = 120.0
"""Seconds for which an autoscaler may lack metrics: a new pod has no measurements yet."""


def find_missing_group(context: ReconcileContext) -> str:
    """Return the API group without which no autoscaler of this mode can work, if the cluster lacks it; else empty.

    An autoscaler that is created without the group records an event every 15 s, and scales nothing.
    """
    group = MEASURED_BY.get(context.settings.autoscaling, "")
    return group if group in context.observed.missing_groups else ""


def report_scaling(context: ReconcileContext) -> RunText | None:
    """Return the text of the condition ScalingActive; None if the judge has a fixed size or is idle."""
    judge = context.run.spec.own_judge
    if judge is None or judge_rests(context):
        return None
    parts = ((names.JUDGE, judge.gateway), (names.SANDBOX, judge.sandbox))
    run = context.plan.run.name
    scaled = [names.component(run, name) for name, part in parts if part.min_replicas < part.max_replicas]
    if not scaled:
        return None
    group = find_missing_group(context)
    stays = "Until then its judge keeps its smallest size, and the run goes on."
    if group:
        message = f"The cluster serves no {group}. {INSTALL[group]} {stays}"
        return RunText("False", Reason.NOT_MEASURED, message)
    if context.settings.autoscaling == "keda" and "ScaledObject" in context.observed.missing_kinds:
        message = f"The cluster serves no ScaledObject. Install KEDA, or set operator.autoscaling to cpu. {stays}"
        return RunText("False", Reason.NOT_MEASURED, message)
    for seen in context.observed.find_by_kind("HorizontalPodAutoscaler", "ScaledObject"):
        scaler = seen.detail
        if not isinstance(scaler, Scaler) or not scaler.trouble or seen.component not in {names.JUDGE, names.SANDBOX}:
            continue
        # The conditions of a ScaledObject have no times.
        since = scaler.since or seen.created_at
        if since is None or context.now - since >= timedelta(seconds=SETTLE_SECONDS):
            remedy = INSTALL.get(MEASURED_BY.get(context.settings.autoscaling, ""), SEE_TO_KEDA)
            message = f"{seen.ref.kind} {seen.ref.name}: {scaler.trouble.rstrip('.')}. {remedy}"
            return RunText("False", Reason.NOT_MEASURED, f"{message} The run goes on at the size it has.")
    return _unless_absent(context, scaled)


def _unless_absent(context: ReconcileContext, scaled: Sequence[str]) -> RunText | None:
    """Return the text that the judge is scaled, or why it cannot be; None while an autoscaler is being created."""
    kind = "ScaledObject" if context.settings.autoscaling == "keda" else "HorizontalPodAutoscaler"
    absent = [name for name in scaled if context.observed.find(kind, name) is None]
    if not absent:
        return RunText("True", Reason.MEASURED, "")
    applied = find_condition(context.before, ConditionType.APPLIED)
    if applied is None or applied.status == "True":
        return None
    message = (
        f"{kind} {', '.join(absent)} is not there: the condition Applied says what the API server refuses. The run "
        "goes on at the size it has."
    )
    return RunText("False", Reason.NOT_MEASURED, message)


def explain_capacity_wait(context: ReconcileContext) -> str:
    """Describe the completions that wait while the judge is scaled to zero; empty if none wait.

    KEDA itself cannot be asked: after its removal the ScaledObjects still report that all is well.
    """
    observed, run = context.observed, context.plan.run.name
    ledger = observed.ledger
    waiting = 0 if ledger is None else ledger.total - ledger.pending - ledger.judged - ledger.not_judged
    if waiting <= 0 or context.run.spec.own_judge is None or judge_rests(context):
        return ""
    for part in (names.JUDGE, names.SANDBOX):
        name = names.component(run, part)
        workload = observed.workload("Deployment", name)
        if workload is None or workload.wanted > 0:
            continue
        if context.settings.autoscaling == "keda":
            remedy = (
                "KEDA starts a pod when it next looks, after half a minute at most. If it does not, see to KEDA and "
                f"its Prometheus: ScaledObject {name} tells what KEDA last saw."
            )
        else:
            remedy = "Somebody set it, and an autoscaler leaves it so: scale it to 1."
        return f"{waiting} answers wait, and Deployment {name} has 0 replicas. {remedy}"
    return ""
