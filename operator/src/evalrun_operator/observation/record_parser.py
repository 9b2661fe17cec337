"""Parses the API server's objects into the records of `records`. Pure.

Anybody may use our labels, so no field is assumed to be as the operator would write it: unreadable objects are skipped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from evalrun_api import names
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE
from evalrun_operator.observation.records import (
    Attempt,
    Claim,
    KueueWord,
    ObjectKey,
    ObservedCluster,
    ObservedObject,
    OwnerController,
    Pod,
    Policy,
    Scaler,
    Workload,
)
from evalrun_operator.policies.troubles import Trouble, classify_trouble
from evalrun_operator.resources.changes import spec_digest
from evalrun_runtime.termination import TerminationMessage, parse_termination_message

Manifest = Mapping[str, Any]
"""An object as JSON: its schema is the API server's."""
MAX_DIGITS = 9
"""Maximum digits of the counts in our annotations."""
CRASHES = 3
"""Restarts after which a container that is up, but not ready, counts as crashing again and again."""
OWNERS = frozenset({EVAL_RUN.kind, EVAL_SCHEDULE.kind})
"""A schedule's kept replicas carry its uid where a run's objects carry the run's."""
ASLEEP = "ScalingDisabled"
"""Reason of a HorizontalPodAutoscaler whose Deployment was set to 0 replicas: nothing is wrong."""


class UnreadableObjectError(Exception):
    """An object has contents that the operator would never write. It is skipped, because anybody may use our labels."""


def parse_record(manifest: Manifest) -> ObservedObject:
    """Return the record of an object that carries a run's uid label.

    Raises:
        UnreadableObjectError: it holds something that cannot be read.
    """
    try:
        return _parse_record(manifest)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnreadableObjectError(f"{type(error).__name__}: {str(error)[:200]}") from error


def _parse_record(manifest: Manifest) -> ObservedObject:
    metadata = manifest.get("metadata", {})
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    kind, name = str(manifest.get("kind", "")), str(metadata.get("name", ""))
    run, uid = labels.get(names.RUN_LABEL, ""), labels.get(names.RUN_UID_LABEL, "")
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    controller = None if owner is None else OwnerController(owner["kind"], owner["name"], owner["uid"])
    make = DETAILS.get(kind)
    return ObservedObject(
        ref=ObjectKey(kind, name),
        uid=str(metadata.get("uid", "")),
        owned=(controller is not None and controller.kind in OWNERS and controller.uid == uid)
        or (kind == "PersistentVolumeClaim" and name == names.ledger_claim(run, uid)),
        component=str(labels.get(names.COMPONENT_LABEL, "")),
        applied=str(annotations.get(names.APPLIED_ANNOTATION, "")),
        deleted_at=_time(metadata.get("deletionTimestamp")),
        attempt=_number(annotations.get(names.ATTEMPT_ANNOTATION)),
        restarts=_number(annotations.get(names.RESTARTS_ANNOTATION)),
        judge_authority=str(annotations.get(names.JUDGE_AUTHORITY_ANNOTATION, "")),
        detail=None if make is None else make(manifest),
        controller=controller,
        created_at=_time(metadata.get("creationTimestamp")),
    )


def parse_kueue_word(workloads: Iterable[Manifest]) -> KueueWord:
    """Return Kueue's report about an object, from its newest Workload; empty if there is no Workload."""
    newest = max(workloads, key=lambda one: str(one.get("metadata", {}).get("creationTimestamp", "")), default=None)
    if newest is None:
        return KueueWord("")
    conditions = {one.get("type"): one for one in (newest.get("status") or {}).get("conditions") or ()}
    if (newest.get("spec") or {}).get("active") is False:
        return KueueWord(
            f"its Workload {newest['metadata']['name']} is deactivated (spec.active: false)", admissible=False
        )
    reserved = conditions.get("QuotaReserved")
    if reserved is None or _holds(reserved):
        # Kueue has not looked at it yet, or has just admitted it.
        return KueueWord("")
    said = " ".join(str(reserved.get("message", "")).split())[:500].rstrip(".")
    return KueueWord(said, admissible=reserved.get("reason") != "Inadmissible")


def select_own_objects(objects: Iterable[ObservedObject]) -> dict[ObjectKey, ObservedObject]:
    """Return those of the objects with a run's uid that really belong to the run.

    Anybody can copy a label, so the controller owner reference decides. Pods count through their owner, and so do the
    autoscalers that KEDA makes of our ScaledObjects. ReplicaSets, between a Deployment and its pods, are not watched:
    their names begin with the Deployment's.
    """
    seen = list(objects)
    ours = [one for one in seen if one.owned]
    uids = {one.uid for one in ours}
    deployments = tuple(f"{one.ref.name}-" for one in ours if one.ref.kind == "Deployment")
    pods = [
        one
        for one in seen
        if one.ref.kind == "Pod"
        and one.controller is not None
        and (
            one.controller.uid in uids
            or (one.controller.kind == "ReplicaSet" and one.controller.name.startswith(deployments))
        )
    ]
    scalers = [
        one
        for one in seen
        if one.ref.kind == "HorizontalPodAutoscaler" and one.controller is not None and one.controller.uid in uids
    ]
    return {one.ref: one for one in (*ours, *pods, *scalers)}


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


def _cluster(manifest: Manifest) -> ObservedCluster:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    current = status.get("observedGeneration", 0) >= manifest.get("metadata", {}).get("generation", 0)
    suspended = bool(spec.get("suspend")) or _holds(conditions.get("RayClusterSuspended"))
    groups = spec.get("workerGroupSpecs") or ()
    wanted = sum(int(group.get("replicas", 0)) for group in groups)
    enough = sum(int(group.get("minReplicas", group.get("replicas", 0))) for group in groups)
    leaving = [name for group in groups for name in (group.get("scaleStrategy") or {}).get("workersToDelete") or ()]
    ready = int(status.get("readyWorkerReplicas", 0))
    usable = (
        current
        and not suspended
        and not _holds(conditions.get("RayClusterSuspending"))
        and _holds(conditions.get("HeadPodReady"))
        and ready >= enough
    )
    failure = conditions.get("ReplicaFailure")
    failing = _holds(failure)
    if failing and failure is not None:
        message = f"{failure.get('reason', '')}: {failure.get('message', '')}"
    else:
        message = f"{ready} of {wanted} workers ready"
    begun = status.get("state") == "ready"
    return ObservedCluster(usable, suspended, failing, message, wanted, tuple(leaving), begun)


def _job(manifest: Manifest) -> Attempt:
    conditions = {
        condition.get("type"): condition for condition in (manifest.get("status") or {}).get("conditions") or ()
    }
    annotations = manifest.get("metadata", {}).get("annotations") or {}
    cluster = str(annotations.get(names.CLUSTER_ANNOTATION, ""))
    for kind, outcome in (("Complete", "succeeded"), ("Failed", "failed")):
        condition = conditions.get(kind)
        if condition is not None and _holds(condition):
            message = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            return Attempt(outcome, message, _time(condition.get("lastTransitionTime")), cluster, "")
    return Attempt("running", "", None, cluster, "", suspended=bool((manifest.get("spec") or {}).get("suspend")))


def _ray_job(manifest: Manifest) -> Attempt:
    status = manifest.get("status") or {}
    annotations = manifest.get("metadata", {}).get("annotations") or {}
    job, deployment = str(status.get("jobStatus", "")), str(status.get("jobDeploymentStatus", ""))
    if job == "SUCCEEDED":
        outcome = "succeeded"
    elif job in {"FAILED", "STOPPED"} or deployment in {"Failed", "ValidationFailed", "Complete"}:
        # KubeRay counts STOPPED as Complete, but for us the work is not done.
        outcome = "failed"
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
    status = manifest.get("status") or {}
    labels = manifest.get("metadata", {}).get("labels") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    state = _pod_state(status, conditions, containers)
    ready, disruption = conditions.get("Ready"), conditions.get("DisruptionTarget")
    return Pod(
        node_type=str(labels.get("ray.io/node-type", "")),
        cluster=str(labels.get("ray.io/cluster", "")),
        ended=status.get("phase") in {"Succeeded", "Failed"},
        ready=_holds(ready),
        trouble=state.trouble.text,
        trouble_kind=state.trouble.kind,
        exit_code=state.exit_code,
        restarts=max((int(container.get("restartCount", 0)) for container in containers), default=0),
        host=str(status.get("podIP", "")),
        failed=state.failed,
        last_words=state.last_words,
        disrupted=_holds(disruption),
        tainted=_holds(disruption) and disruption is not None and disruption.get("reason") == DELETED_FOR_TAINT,
        ready_since=_time(ready.get("lastTransitionTime")) if ready is not None and _holds(ready) else None,
        node=str((manifest.get("spec") or {}).get("nodeName", "")),
        finalizers=tuple(map(str, manifest.get("metadata", {}).get("finalizers") or ())),
    )


NO_TROUBLE = Trouble("")
DELETED_FOR_TAINT = "DeletionByTaintManager"
"""Kubernetes' reason of the condition DisruptionTarget of a pod whose node was lost."""


@dataclass(frozen=True)
class _PodState:
    """Reason for which a pod does not run."""

    trouble: Trouble = NO_TROUBLE
    exit_code: int | None = None
    failed: str = ""
    last_words: TerminationMessage | None = None


def _pod_state(status: Manifest, conditions: Mapping[str, Manifest], containers: list[Manifest]) -> _PodState:
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return _PodState(
            classify_trouble(str(scheduled.get("reason", "Unschedulable")), str(scheduled.get("message", "")))
        )
    for container in containers:
        state = container.get("state") or {}
        ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
        code = ended.get("exitCode")
        waiting = state.get("waiting") or {}
        # The container is up but not ready. A large ledger takes an hour to read, so only a container that crashed
        # several times is in trouble.
        restarting = "running" in state and not container.get("ready") and container.get("restartCount", 0) >= CRASHES
        if code and (state.get("terminated") or waiting or restarting):
            return _make_failed_state(str(container.get("name")), int(code), ended)
        if waiting.get("reason", "") not in {"", "PodInitializing", "ContainerCreating"}:
            return _PodState(classify_trouble(str(waiting["reason"]), str(waiting.get("message", ""))))
    if status.get("phase") == "Failed":
        return _PodState(classify_trouble(str(status.get("reason", "Failed")), str(status.get("message", ""))))
    return _PodState()


def _make_failed_state(container: str, code: int, ended: Manifest) -> _PodState:
    """Return the state of a pod whose container ended with a nonzero exit code."""
    message = str(ended.get("message", ""))
    record = parse_termination_message(message)
    said = " ".join((message if record is None else record.text).split())
    text = f"{container} ended with {code} ({ended.get('reason', 'Error')}): {said}"[:500].rstrip(": ")
    return _PodState(Trouble(text), code, container, None if record is None else replace(record, text=said[:500]))


def _scaler(manifest: Manifest) -> Scaler:
    """Read a HorizontalPodAutoscaler's condition ScalingActive, or a ScaledObject's Fallback and Ready.

    With a fallback KEDA calls a ScaledObject ready although its Prometheus does not reply.
    """
    conditions = {one.get("type"): one for one in (manifest.get("status") or {}).get("conditions") or ()}
    fallback = conditions.get("Fallback")
    if _holds(fallback):
        return Scaler("KEDA gets no measurements and holds the size")
    said = conditions.get("ScalingActive") or conditions.get("Ready")
    if said is None or said.get("status") != "False" or said.get("reason") == ASLEEP:
        return Scaler("")
    text = f"{said.get('reason', '')}: {said.get('message', '')}"[:500].strip(": ")
    return Scaler(text, _time(said.get("lastTransitionTime")))


def _claim(manifest: Manifest) -> Claim:
    return Claim(bound=(manifest.get("status") or {}).get("phase") == "Bound")


def _holds(condition: Manifest | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _number(text: str | None) -> int:
    """Return a count from an annotation, or 0 if it is no count: `int` raises beyond 4,300 digits."""
    return int(text) if text is not None and len(text) <= MAX_DIGITS and text.isdecimal() else 0


def _time(text: str | None) -> datetime | None:
    return None if not text else datetime.fromisoformat(text)


DETAILS: dict[str, Callable[[Manifest], Workload | ObservedCluster | Attempt | Pod | Claim | Policy | Scaler]] = {
    "StatefulSet": _workload,
    "Deployment": _workload,
    "RayCluster": _cluster,
    "RayJob": _ray_job,
    "Job": _job,
    "Pod": _pod,
    "PersistentVolumeClaim": _claim,
    "HorizontalPodAutoscaler": _scaler,
    "ScaledObject": _scaler,
    "NetworkPolicy": lambda manifest: Policy(spec_digest(manifest.get("spec"))),
}
"""Functions that read the state of an object, by kind. For other kinds only the existence is known."""
