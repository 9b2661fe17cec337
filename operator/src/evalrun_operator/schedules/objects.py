"""The objects that a schedule creates: Jobs that list or merge checkpoints, their NetworkPolicy, and EvalRuns. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from evalrun_api import names
from evalrun_api.checkpoint_listing import DIGEST_DIGITS, ListingRequest, ReadyCheckpoint
from evalrun_api.v1alpha1 import (
    API_VERSION,
    KIND,
    SCHEDULE_KIND,
    BestCheckpoint,
    EvalSchedule,
    EvalScheduleStatus,
    PendingMerge,
    Placement,
)
from evalrun_api.v1alpha1.gates import LAST_GOOD, Gate
from evalrun_api.v1alpha1.schedule import Race
from evalrun_cluster.objects import Object
from evalrun_operator.resources.network import outside
from evalrun_operator.resources.pods import CONTAINER_SECURITY, USER, claim_volumes, pod_security
from evalrun_operator.resources.ray_cluster import USER as RAY_USER
from evalrun_operator.schedules.merge_step import (
    cache_directory,
    list_protected_digests,
    make_directory_name,
    make_model_url,
    merge_job_name,
)
from evalrun_operator.schedules.runs import ScheduledRun
from evalrun_operator.settings import OperatorSettings

COMPONENT = "checkpoints"
LISTING_SECONDS = 900
"""Maximum duration of a Job in seconds, including the wait for a node and an image."""
MERGE_SECONDS = 4 * 3600
"""Maximum duration of a Job that merges."""
SCRATCH = "/scratch"
KEPT_SECONDS = 600
"""Seconds after which an ended Job is deleted if the operator is not there to do it."""
ANSWER_FILE = "/dev/termination-log"
RESOURCES: Object = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def make_listing_job(schedule: EvalSchedule, name: str, request: ListingRequest, settings: OperatorSettings) -> Object:
    """Return the Job that lists checkpoints. Its termination message holds the reply.

    Only this Job holds the bucket's credentials.
    """
    template = schedule.spec.template
    secret = template.output.credentials_secret_ref
    volumes, mounts = claim_volumes([schedule.spec.checkpoints.url])
    container: Object = {
        "name": COMPONENT,
        "image": settings.aggregator_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["python", "-m", "evalrun_data.checkpoints"],
        "args": [request.model_dump_json(exclude_defaults=True), f"--answer={ANSWER_FILE}"],
        "envFrom": [] if secret is None else [{"secretRef": {"name": secret.name}}],
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePath": ANSWER_FILE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": RESOURCES,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],  # noqa: S108 - an emptyDir of the pod
    }
    all_volumes = [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, *volumes]
    return _job(schedule, name, settings, LISTING_SECONDS, USER, containers=[container], volumes=all_volumes)


def make_merge_job(
    schedule: EvalSchedule,
    one: PendingMerge,
    status: EvalScheduleStatus,
    runs: Sequence[ScheduledRun],
    settings: OperatorSettings,
) -> Object:
    """Return the Job that merges a checkpoint's shards and puts the model into the cache.

    The merger runs in the Ray image, which has verl but no bucket's packages. It gets no credentials, because it
    unpickles the shards. Other containers, of the aggregator's image, fetch the shards before it and store the model
    after it.
    """
    metadata, spec, template = schedule.metadata, schedule.spec, schedule.spec.template
    uid = metadata.uid or ""
    source = checkpoint_url(spec.checkpoints.url, one.path)
    directory = cache_directory(spec, metadata.name, uid)
    local = names.parse_claim(source) is not None
    shards = names.local_path(source) if local else f"{SCRATCH}/checkpoint"
    volumes, mounts = claim_volumes([source], writable=directory)
    every = [{"name": "scratch", "mountPath": SCRATCH}, {"name": "tmp", "mountPath": "/tmp"}, *mounts]  # noqa: S108
    secret = template.output.credentials_secret_ref
    credentials = [] if secret is None else [{"secretRef": {"name": secret.name}}]
    common: Object = {
        "imagePullPolicy": settings.image_pull_policy,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": every,
    }
    step = ["python", "-m", "evalrun_data.checkpoints.merging"]
    ours = {**common, "image": settings.aggregator_image, "envFrom": credentials, "resources": RESOURCES}
    fetch = {**ours, "name": "fetch", "command": [*step, "fetch"], "args": [source, shards]}
    rollout = template.rollout
    merge: Object = {
        **common,
        "name": "merge",
        "image": (None if rollout is None else rollout.image) or settings.ray_image,
        "command": ["python3", "-m", "verl.model_merger", "merge"],
        "args": ["--backend=fsdp", f"--local_dir={shards}", f"--target_dir={SCRATCH}/merged"],
        # The merger runs offline: everything is in the checkpoint, and code that comes with it must reach nobody.
        "env": [{"name": "HOME", "value": SCRATCH}, {"name": "USER", "value": "evalrun"},
                {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "resources": _merger_resources(schedule, settings),
    }  # fmt: skip
    if template.model.trust_remote_code:
        merge["args"].append("--trust-remote-code")
    keep = 1 if spec.merge is None else spec.merge.keep
    adapter = ["--adapter"] if one.adapter else []
    protect = [f"--protect={digest}" for digest in list_protected_digests(status, runs)]
    store = {
        **ours,
        "name": COMPONENT,
        "command": [*step, "store"],
        "args": [
            f"{SCRATCH}/merged",
            names.local_path(directory),
            make_directory_name(one),
            f"--keep={keep}",
            *protect,
            *adapter,
        ],
    }
    return _job(
        schedule,
        merge_job_name(metadata.name, uid, one.digest),
        settings,
        MERGE_SECONDS,
        RAY_USER,
        initContainers=[merge] if local else [fetch, merge],
        containers=[store],
        volumes=[{"name": "scratch", "emptyDir": {}}, {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, *volumes],
    )


def _merger_resources(schedule: EvalSchedule, settings: OperatorSettings) -> Object:
    rollout, merge = schedule.spec.template.rollout, schedule.spec.merge
    gpus = 1 if rollout is None else rollout.gpus_per_node
    memory = {"memory": f"{gpus * settings.worker_memory_gib_per_gpu}Gi"}
    given = None if merge is None else merge.resources
    if given is None:
        return {"requests": {"cpu": "4", **memory}, "limits": memory}
    limits = {**given.requests, **given.limits}
    return {"requests": {**limits, **given.requests}, "limits": limits}


def jobs_policy(schedule: EvalSchedule, settings: OperatorSettings) -> Object:
    """Return the NetworkPolicy of a schedule's Jobs: no ingress, and the egress of an aggregator.

    The merger unpickles files that training wrote, and may run a model's own code. On the metadata service that code
    would find the credentials of its node.
    """
    labels = _labels(schedule)
    selected = {name: labels[name] for name in (names.COMPONENT_LABEL, names.SCHEDULE_LABEL)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(schedule, names.component(schedule.metadata.name, COMPONENT), labels),
        "spec": {
            "podSelector": {"matchLabels": selected},
            "policyTypes": ["Ingress", "Egress"],
            "egress": outside(settings, "aggregator"),
        },
    }


def _job(
    schedule: EvalSchedule, name: str, settings: OperatorSettings, seconds: int, user: int, **fields: object
) -> Object:
    """Return a Job of a schedule, placed like the runs' aggregators. `fields` are fields of its pod."""
    template = schedule.spec.template
    chart, own = (where.get("aggregator", Placement()) for where in (settings.placement, template.placement))
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": pod_security(user),
        "imagePullSecrets": [{"name": secret.name} for secret in template.image_pull_secrets],
        **fields,
    }
    if template.service_account_name is not None:
        pod["serviceAccountName"] = template.service_account_name
    labels = _labels(schedule)
    pod |= chart.pod_fields(labels) | own.pod_fields(labels)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(schedule, name, labels),
        "spec": {
            # The schedule counts attempts itself, so the Job must not repeat its pod.
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {
                    "labels": settings.pod_labels | chart.labels | template.pods.labels | own.labels | labels,
                    "annotations": settings.pod_annotations
                    | chart.annotations
                    | template.pods.annotations
                    | own.annotations,
                },
                "spec": pod,
            },
        },
    }


def run_name(schedule: str, digest: str) -> str:
    """Return the name of a checkpoint's run. The API server refuses to create it twice."""
    return f"{schedule}-{digest[:DIGEST_DIGITS]}"


def checkpoint_url(directory: str, path: str) -> str:
    """Return the URL of a model's directory below the directory of the checkpoints."""
    return f"{directory.rstrip('/')}/{path}"


def make_eval_run(
    schedule: EvalSchedule, found: ReadyCheckpoint, start: datetime, parent: str | None, trigger: str | None = None
) -> Object:
    """Return the EvalRun of a checkpoint.

    Args:
        schedule: the schedule that creates it.
        found: the checkpoint.
        start: time of the start that it belongs to.
        parent: the run of the checkpoint before; None for the first.
        trigger: for a start by hand, the value of the annotation that requested it.
    """
    name = schedule.metadata.name
    spec = schedule.spec.template.to_wire()
    url = checkpoint_url(schedule.spec.checkpoints.url, found.path)
    base = spec["model"].pop("base", None)
    spec["model"] |= {"path": base, "adapter": url} if found.adapter else {"path": url}
    lineage = {**spec.get("lineage", {}), "schedule": name, "step": found.step}
    spec["lineage"] = {**lineage, "parent": parent} if parent else lineage
    _resolve_gates(schedule, spec)
    labels = {**_labels(schedule), names.STEP_LABEL: str(found.step)}
    if (phase := lineage.get("phase")) is not None:
        labels[names.PHASE_LABEL] = phase
    annotations = {
        names.CHECKPOINT_DIGEST_ANNOTATION: found.digest,
        names.SCHEDULED_AT_ANNOTATION: start.isoformat(),
    }
    if trigger is not None:
        annotations[names.TRIGGER_ANNOTATION] = trigger
    if schedule.spec.replicas is not None:
        annotations[names.KEPT_ANNOTATION] = "true"
    if found.adapter:
        annotations[names.CHECKPOINT_URL_ANNOTATION] = url
    metadata = _metadata(schedule, run_name(name, found.digest), labels)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata, "annotations": annotations},
        "spec": spec,
    }


def make_merged_run(schedule: EvalSchedule, one: PendingMerge) -> Object:
    """Return the EvalRun of a checkpoint whose model is in the cache."""
    found = ReadyCheckpoint(path=one.path, step=one.step, digest=one.digest, adapter=one.adapter)
    manifest = make_eval_run(schedule, found, one.start, one.parent, one.trigger)
    field = "adapter" if one.adapter else "path"
    source = manifest["spec"]["model"][field]
    manifest["spec"]["model"][field] = make_model_url(
        schedule.spec, schedule.metadata.name, schedule.metadata.uid or "", one
    )
    manifest["metadata"]["annotations"][names.CHECKPOINT_URL_ANNOTATION] = source
    return manifest


def _resolve_gates(schedule: EvalSchedule, spec: Object) -> None:
    """Replace LastGood in the gates, and add the race's gate against the best checkpoint.

    Without such a checkpoint these gates are left out. The checkpoint is named by the URL of its outputs, which
    outlives the run, and by the run's name only if it has no URL.
    """
    status = schedule.status or EvalScheduleStatus()
    good = status.last_good
    place = None if good is None else good.output_url or run_name(schedule.metadata.name, good.digest)

    def resolve_gate(gate: Object) -> Object | None:
        if gate.get("baseline") != LAST_GOOD:
            return gate
        return None if place is None else {**gate, "baseline": place}

    gates = [found for gate in spec.get("gates", ()) if (found := resolve_gate(gate)) is not None]
    if schedule.spec.race is not None and status.best is not None:
        gates.append(race_gate(schedule.spec.race, status.best, schedule.spec.allow_test_role))
    if gates:
        spec["gates"] = gates
    else:
        spec.pop("gates", None)


def race_gate(race: Race, best: BestCheckpoint, allow_test_role: Sequence[str]) -> Object:
    """Return the gate that a checkpoint passes if it is at least as good as the best checkpoint so far."""
    gate = Gate(
        baseline=best.output_url,
        dataset=race.dataset,
        sequential=True,
        keep_passing=True,
        confidence=race.confidence,
        allow_forgeable=race.allow_forgeable,
        allow_test_role=[name for name in allow_test_role if name == race.dataset],
    )
    return gate.to_wire()


def _labels(schedule: EvalSchedule) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "evalrun",
        "app.kubernetes.io/managed-by": names.FIELD_MANAGER,
        names.COMPONENT_LABEL: COMPONENT,
        names.SCHEDULE_LABEL: schedule.metadata.name,
    }


def _metadata(schedule: EvalSchedule, name: str, labels: Mapping[str, str]) -> Object:
    owner = {
        "apiVersion": API_VERSION, "kind": SCHEDULE_KIND, "name": schedule.metadata.name, "uid": schedule.metadata.uid,
        "controller": True,
    }  # fmt: skip
    return {
        "name": name,
        "namespace": schedule.metadata.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner],
    }
