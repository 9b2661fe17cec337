"""What is seen of a run's objects: small frozen records made from the API server's objects, and nothing else of them.

A thousand runs have tens of thousands of objects; as whole they would fill the operator's memory.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evalrun_operator import names
from evalrun_operator.ledger_status import LedgerStatus

Manifest = Mapping[str, Any]
"""An object as JSON: its schema is the API server's."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Names an object within its namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One object that was made for a run."""

    ref: Ref
    uid: str
    owned: bool
    """The EvalRun owns it directly, or it is the ledger's claim: the operator's own work, not a controller's."""
    component: str
    applied: str
    """The digest that it was applied with."""
    deleted_at: datetime | None
    """When its deletion was asked for."""
    attempt: int = 0
    restarts: int = 0
    detail: "Workload | Cluster | Attempt | Pod | None" = None

    @property
    def deleting(self) -> bool:
        """Whether it is on its way out."""
        return self.deleted_at is not None


@dataclass(frozen=True, slots=True)
class Workload:
    """A StatefulSet's or Deployment's state."""

    wanted: int
    ready: int
    settled: bool
    """Its controller has seen the newest spec, and every pod is of it and ready."""
    trouble: str = ""
    """Why pods of a Deployment cannot be made at all, e.g. pod security or a quota; empty where they can."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A RayCluster's state."""

    usable: bool
    """Head and all workers are up now. (`state: ready` never goes back and says nothing.)"""
    suspended: bool
    """Kueue holds it back, or took its place away."""
    failing: bool
    """KubeRay cannot make its pods; it goes on trying."""
    message: str
    workers: int = 0
    """Worker pods that it is to have."""
    leaving: tuple[str, ...] = ()
    """Worker pods that KubeRay was told to delete."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A Job's or RayJob's state."""

    outcome: str
    """running, succeeded or failed."""
    message: str
    finished_at: datetime | None
    cluster: str
    head_uid: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod's state."""

    node_type: str
    """head or worker, of a RayCluster's pods."""
    cluster: str
    ended: bool
    ready: bool
    trouble: str
    """Why it does not run, for people; empty where it does."""
    exit_code: int | None
    """Of the last container that ended otherwise than with 0."""
    restarts: int
    holds_gpu: bool
    failed: str = ""
    """The container of `exit_code`."""
    host: str = ""
    """Its address; empty before it has one."""


@dataclass(frozen=True)
class Baseline:
    """The EvalRun that a gate names as its baseline."""

    phase: str
    """As its status has it; empty where there is no such run."""
    output_url: str = ""
    """Empty where it has no outputs (yet)."""


@dataclass(frozen=True)
class Observed:
    """Everything that one pass knows of a run."""

    objects: Mapping[Ref, Seen] = field(default_factory=dict)
    token: str | None = None
    """What the run's Secret holds."""
    ledger: LedgerStatus | None = None
    """None where the aggregator is not up or does not answer."""
    missing_kinds: frozenset[str] = frozenset()
    """Kinds that the cluster does not serve: KubeRay or KEDA is not installed."""
    baseline: Baseline | None = None
    """Looked up where the gate names an EvalRun and the run has not started yet."""
    resync: bool = False
    """Apply everything anew, whatever the digests say."""

    def find(self, kind: str, name: str) -> Seen | None:
        """Give an object of ours that is there and not on its way out."""
        seen = self.objects.get(Ref(kind, name))
        return None if seen is None or seen.deleting else seen

    def workload(self, kind: str, name: str) -> Workload | None:
        """Give the state of a StatefulSet or Deployment."""
        seen = self.find(kind, name)
        return seen.detail if seen is not None and isinstance(seen.detail, Workload) else None

    def of_kind(self, *kinds: str) -> list[Seen]:
        """Give every object of these kinds, those on their way out too, by name."""
        found = (seen for seen in self.objects.values() if seen.ref.kind in kinds)
        return sorted(found, key=lambda seen: (seen.attempt, seen.ref.name))

    def pods(self, component: str) -> list[tuple[Seen, Pod]]:
        """Give the pods of a component, those on their way out too."""
        return [
            (seen, seen.detail)
            for seen in self.of_kind("Pod")
            if seen.component == component and isinstance(seen.detail, Pod)
        ]

    def troubles(self, *components: str) -> str:
        """Say what keeps the pods of some components from being made, or from running; empty where nothing does."""
        found = {
            f"{seen.ref.name}: {seen.detail.trouble}"
            for seen in self.of_kind("Deployment", "Pod")
            if seen.component in components
            and not seen.deleting
            and isinstance(seen.detail, Workload | Pod)
            and seen.detail.trouble
        }
        return "; ".join(sorted(found)[:3])


def digest(manifest: Manifest) -> Seen:
    """Make the record of an object that carries a run's uid label."""
    metadata = manifest.get("metadata", {})
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    kind = str(manifest.get("kind", ""))
    uid = labels.get(names.RUN_UID_LABEL, "")
    owners = metadata.get("ownerReferences") or ()
    make = DETAILS.get(kind)
    return Seen(
        ref=Ref(kind, str(metadata.get("name", ""))),
        uid=str(metadata.get("uid", "")),
        owned=any(owner.get("uid") == uid for owner in owners) or kind == "PersistentVolumeClaim",
        component=str(labels.get(names.COMPONENT_LABEL, "")),
        applied=str(annotations.get(names.APPLIED_ANNOTATION, "")),
        deleted_at=_time(metadata.get("deletionTimestamp")),
        attempt=_number(annotations.get(names.ATTEMPT_ANNOTATION)),
        restarts=_number(annotations.get(names.RESTARTS_ANNOTATION)),
        detail=None if make is None else make(manifest),
    )


def by_ref(objects: Iterable[Seen]) -> dict[Ref, Seen]:
    """Index records by what they name."""
    return {seen.ref: seen for seen in objects}


def _workload(manifest: Manifest) -> Workload:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    wanted = int(spec.get("replicas", 1))
    ready = int(status.get("readyReplicas", 0))
    current = status.get("observedGeneration", 0) >= manifest.get("metadata", {}).get("generation", 0)
    updated = int(status.get("updatedReplicas", 0))
    total = int(status.get("replicas", 0))
    refused = next((one for one in status.get("conditions") or () if one.get("type") == "ReplicaFailure"), None)
    trouble = f"{refused['reason']}: {refused['message']}"[:500] if refused is not None and _holds(refused) else ""
    return Workload(wanted, ready, settled=current and ready == wanted == total and updated >= wanted, trouble=trouble)


def _cluster(manifest: Manifest) -> Cluster:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    current = status.get("observedGeneration", 0) >= manifest.get("metadata", {}).get("generation", 0)
    suspended = bool(spec.get("suspend")) or _holds(conditions.get("RayClusterSuspended"))
    groups = spec.get("workerGroupSpecs") or ()
    wanted = sum(int(group.get("replicas", 0)) for group in groups)
    leaving = [name for group in groups for name in (group.get("scaleStrategy") or {}).get("workersToDelete") or ()]
    ready = int(status.get("readyWorkerReplicas", 0))
    usable = (
        current
        and not suspended
        and not _holds(conditions.get("RayClusterSuspending"))
        and _holds(conditions.get("HeadPodReady"))
        and ready >= wanted
    )
    failure = conditions.get("ReplicaFailure")
    failing = _holds(failure)
    if failing and failure is not None:
        message = f"{failure.get('reason', '')}: {failure.get('message', '')}"
    else:
        message = f"{ready} of {wanted} workers ready"
    return Cluster(usable, suspended, failing, message, wanted, tuple(leaving))


def _job(manifest: Manifest) -> Attempt:
    conditions = {
        condition.get("type"): condition for condition in (manifest.get("status") or {}).get("conditions") or ()
    }
    for kind, outcome in (("Complete", "succeeded"), ("Failed", "failed")):
        condition = conditions.get(kind)
        if condition is not None and _holds(condition):
            message = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            return Attempt(outcome, message, _time(condition.get("lastTransitionTime")), "", "")
    return Attempt("running", "", None, "", "")


def _ray_job(manifest: Manifest) -> Attempt:
    status = manifest.get("status") or {}
    annotations = manifest.get("metadata", {}).get("annotations") or {}
    job, deployment = str(status.get("jobStatus", "")), str(status.get("jobDeploymentStatus", ""))
    if job == "SUCCEEDED":
        outcome = "succeeded"
    elif job in {"FAILED", "STOPPED"} or deployment in {"Failed", "ValidationFailed", "Complete"}:
        outcome = "failed"  # STOPPED counts as Complete with KubeRay; for us the work is not done
    else:
        outcome = "running"
    message = f"{status.get('reason', '')} {status.get('message', '')}".strip()
    return Attempt(
        outcome,
        message,
        _time(status.get("endTime")),
        str(annotations.get(names.CLUSTER_ANNOTATION, "")),
        str(annotations.get(names.HEAD_UID_ANNOTATION, "")),
    )


def _pod(manifest: Manifest) -> Pod:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    labels = manifest.get("metadata", {}).get("labels") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    trouble, exit_code, failed = _trouble(status, conditions, containers)
    return Pod(
        node_type=str(labels.get("ray.io/node-type", "")),
        cluster=str(labels.get("ray.io/cluster", "")),
        ended=status.get("phase") in {"Succeeded", "Failed"},
        ready=_holds(conditions.get("Ready")),
        trouble=trouble,
        exit_code=exit_code,
        restarts=max((int(container.get("restartCount", 0)) for container in containers), default=0),
        holds_gpu=any(
            "nvidia.com/gpu" in ((container.get("resources") or {}).get("limits") or {})
            for container in spec.get("containers") or ()
        ),
        host=str(status.get("podIP", "")),
        failed=failed,
    )


def _trouble(
    status: Manifest, conditions: Mapping[str, Manifest], containers: list[Manifest]
) -> tuple[str, int | None, str]:
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"[:500], None, ""
    for container in containers:
        state = container.get("state") or {}
        ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
        code = ended.get("exitCode")
        waiting = state.get("waiting") or {}
        if code and (state.get("terminated") or waiting):
            said = " ".join(str(ended.get("message", "")).split())
            reason = ended.get("reason", "Error")
            name = str(container.get("name"))
            return f"{name} ended with {code} ({reason}): {said}"[:500].rstrip(": "), int(code), name
        if waiting.get("reason", "") not in {"", "PodInitializing", "ContainerCreating"}:
            return f"{waiting['reason']}: {waiting.get('message', '')}"[:500].rstrip(": "), None, ""
    if status.get("phase") == "Failed":
        return f"{status.get('reason', 'Failed')}: {status.get('message', '')}"[:500].rstrip(": "), None, ""
    return "", None, ""


def _holds(condition: Manifest | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _time(text: str | None) -> datetime | None:
    return None if not text else datetime.fromisoformat(text)


DETAILS: dict[str, Callable[[Manifest], Workload | Cluster | Attempt | Pod]] = {
    "StatefulSet": _workload,
    "Deployment": _workload,
    "RayCluster": _cluster,
    "RayJob": _ray_job,
    "Job": _job,
    "Pod": _pod,
}
"""What is read of a kind's state; of other kinds only that they exist."""
