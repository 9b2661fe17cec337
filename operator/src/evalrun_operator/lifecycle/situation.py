"""Holds the context of a decision about a run and derives facts from it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType, EvalRun, EvalRunStatus, find_condition
from evalrun_cluster.objects import RunIdentity
from evalrun_operator.ledger_status import RunState
from evalrun_operator.observation.records import Attempt, Observed, ObservedCluster, ObservedObject
from evalrun_operator.policies.admission import QueuedRun
from evalrun_operator.policies.start import CRAMPED
from evalrun_operator.policies.stuck_pods import stuck_pods
from evalrun_operator.policies.troubles import TroubleKind
from evalrun_operator.resources import RunPlan
from evalrun_operator.settings import OperatorSettings


@dataclass(frozen=True)
class ReconcileContext:
    """The facts on which a decision depends."""

    run: EvalRun
    before: EvalRunStatus
    plan: RunPlan
    observed: Observed
    now: datetime

    @property
    def settings(self) -> OperatorSettings:
        """The operator's settings."""
        return self.plan.settings

    @property
    def output_url(self) -> str:
        """Address of the outputs that the ledger reports, valid outside of its pod; empty if none is reported yet."""
        run, ledger = self.plan.run, self.observed.ledger
        return "" if ledger is None else names.claim_url(ledger.output_url, names.ledger_claim(run.name, run.uid))

    @property
    def generated(self) -> bool:
        """Whether every completion is in the ledger, by its last known reply.

        A ledger that reports missing completions wins over earlier knowledge: its volume was lost.
        """
        ledger = self.observed.ledger
        if ledger is not None and (ledger.all_generated or ledger.some_missing):
            return ledger.all_generated
        return holds(self.before, ConditionType.GENERATED)


def explain_unready_parts(context: ReconcileContext) -> str:
    """Name the parts among aggregator and judge that are not ready; empty if all are ready and the ledger replies."""
    run, observed = context.plan.run.name, context.observed
    parts = [("StatefulSet", names.AGGREGATOR)]
    if context.run.spec.own_judge is not None and not judge_rests(context):
        parts += [("Deployment", names.JUDGE), ("Deployment", names.SANDBOX)]
    down = []
    for kind, part in parts:
        workload = observed.workload(kind, names.component(run, part))
        if workload is None or (workload.ready == 0 and (workload.wanted > 0 or part == names.AGGREGATOR)):
            down.append(part)
    if down:
        troubles = observed.trouble_list(*down)
        room = f" {CRAMPED}" if any(trouble.kind is TroubleKind.ROOM for trouble in troubles) else ""
        told = "; ".join(trouble.text for trouble in troubles[:3])
        said = f"{', '.join(down)} not ready yet. {told}{room}".strip()
        return f"{said} {stuck_pods(observed, context.now, *down)}".strip()
    if observed.ledger is not None:
        return ""
    return f"The aggregator is up, but does not answer yet. {observed.ledger_error}".strip()


def judge_rests(context: ReconcileContext) -> bool:
    """Return whether the run has neither gateways nor sandboxes now: it is suspended, or Kueue holds it back.

    A run under Kueue asks for its quota first: its judge would wait for hours, on nodes that others need.
    """
    if context.run.spec.suspend or holds(context.before, ConditionType.SUSPENDED):
        return True
    if context.run.spec.queue_name is None or context.generated:
        return False
    queued = [seen.detail for seen in context.observed.find_by_kind("RayCluster", "Job") if not seen.deleting]
    queued = [one for one in queued if not isinstance(one, Attempt) or one.outcome == "running"]
    # The first attempt is still to come, or a later attempt replaces one that was lost or failed.
    if not queued:
        return context.observed.find("Deployment", names.component(context.plan.run.name, names.JUDGE)) is None
    return all(not isinstance(one, ObservedCluster | Attempt) or one.suspended for one in queued)


def find_aggregator(plan: RunPlan, observed: Observed) -> ObservedObject | None:
    """Return the run's aggregator, unless it is being deleted."""
    return observed.find("StatefulSet", names.component(plan.run.name, names.AGGREGATOR))


def find_cut_off_aggregator(context: ReconcileContext) -> list[ObservedObject]:
    """Return the aggregator if the chart's judge no longer accepts its calls.

    That is so after the authority or the TLS mode changed. A recreated aggregator continues from its ledger with the
    right settings.
    """
    plan, observed = context.plan, context.observed
    seen = find_aggregator(plan, observed)
    if seen is None or (plan.judge_is_issued and observed.judge_authority is None):
        return []
    return [seen] if seen.judge_authority != plan.judge_authority else []


def has_ledger_failed(context: ReconcileContext) -> bool:
    """Return whether a running aggregator reports that its ledger cannot continue."""
    ledger = context.observed.ledger
    workload = context.observed.workload("StatefulSet", names.component(context.plan.run.name, names.AGGREGATOR))
    return ledger is not None and ledger.state is RunState.FAILED and workload is not None and workload.settled


def aggregator_restarts(context: ReconcileContext) -> int:
    """Return how often the aggregator was restarted after its ledger failed."""
    seen = find_aggregator(context.plan, context.observed)
    return 0 if seen is None else seen.restarts


def holds(status: EvalRunStatus, kind: ConditionType) -> bool:
    """Return whether a condition is True."""
    condition = find_condition(status, kind)
    return condition is not None and condition.status == "True"


def parse_queued_run(manifest: Mapping[str, Any]) -> QueuedRun | None:
    """Return an EvalRun as active or queued; None if it is neither."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    said = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    if metadata.get("deletionTimestamp") or said.get(ConditionType.COMPLETE) == "True":
        return None
    started = bool(status.get("startTime")) and said.get(ConditionType.SUSPENDED) != "True"
    if not started and (spec.get("suspend") or said.get(ConditionType.ACCEPTED) == "False"):
        return None
    stalled = started and said.get(ConditionType.STALLED) == "True"
    name = f"{metadata['namespace']}/{metadata['name']}"
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    return QueuedRun(metadata["uid"], created, name, active=started and not stalled, stalled=stalled)


def holds_queue_position(status: EvalRunStatus) -> bool:
    """Return whether a run with this status counts as active. An ended, suspended or stalled run does not."""
    given_back = (ConditionType.COMPLETE, ConditionType.SUSPENDED, ConditionType.STALLED)
    return status.start_time is not None and not any(holds(status, kind) for kind in given_back)


def make_identity(run: EvalRun) -> RunIdentity:
    """Return the identity of an EvalRun."""
    metadata = run.metadata
    created = metadata.creation_timestamp
    if metadata.uid is None or metadata.namespace is None or created is None:
        raise ValueError(f"EvalRun {metadata.name} does not come from an API server: uid, namespace or time is missing")
    return RunIdentity(metadata.name, metadata.namespace, metadata.uid, created)
