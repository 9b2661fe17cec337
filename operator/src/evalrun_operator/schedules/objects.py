"""What a schedule makes: the Job that lists its checkpoints, and the EvalRun of a checkpoint. Pure."""

from collections.abc import Mapping
from datetime import datetime

from evalrun_api import names
from evalrun_api.listing import DIGEST_DIGITS, ListingRequest, ReadyCheckpoint
from evalrun_api.v1alpha1 import API_VERSION, KIND, SCHEDULE_KIND, EvalSchedule
from evalrun_api.v1alpha1.gating import LAST_GOOD
from evalrun_cluster.objects import Object
from evalrun_operator.resources.pods import CONTAINER_SECURITY, USER, claim_volumes, pod_security
from evalrun_operator.settings import OperatorSettings

COMPONENT = "checkpoints"
LISTING_SECONDS = 900
"""How long a Job may take, waiting for a node and an image included."""
KEPT_SECONDS = 600
"""How long an ended Job stays if the operator is not there to take it away."""
ANSWER_FILE = "/dev/termination-log"
RESOURCES: Object = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def listing_job(schedule: EvalSchedule, name: str, request: ListingRequest, settings: OperatorSettings) -> Object:
    """Return the Job that lists: it alone holds the bucket's credentials, and it answers in its termination message."""
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
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": pod_security(USER),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, *volumes],
        "imagePullSecrets": [{"name": secret.name} for secret in template.image_pull_secrets],
    }
    if template.service_account_name is not None:
        pod["serviceAccountName"] = template.service_account_name
    labels = _labels(schedule)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(schedule, name, labels),
        "spec": {
            "backoffLimit": 0,  # looks are counted here, not by the Job
            "activeDeadlineSeconds": LISTING_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {
                    "labels": {**settings.pod_labels, **template.pods.labels, **labels},
                    "annotations": {**settings.pod_annotations, **template.pods.annotations},
                },
                "spec": pod,
            },
        },
    }


def run_name(schedule: str, digest: str) -> str:
    """Return the name of a checkpoint's run: creating it twice is refused by the API server."""
    return f"{schedule}-{digest[:DIGEST_DIGITS]}"


def checkpoint_url(folder: str, path: str) -> str:
    """Return the URL of a model's folder below the folder of the checkpoints."""
    return f"{folder.rstrip('/')}/{path}"


def eval_run(schedule: EvalSchedule, found: ReadyCheckpoint, start: datetime, parent: str | None) -> Object:
    """Return the EvalRun of a checkpoint.

    Args:
        schedule: what makes it.
        found: the checkpoint.
        start: the start that it belongs to.
        parent: the run of the checkpoint before; None for the first.
    """
    name = schedule.metadata.name
    spec = schedule.spec.template.to_wire()
    spec["model"] = {**spec["model"], "path": checkpoint_url(schedule.spec.checkpoints.url, found.path)}
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
    metadata = _metadata(schedule, run_name(name, found.digest), labels)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata, "annotations": annotations},
        "spec": spec,
    }


def _resolve_gates(schedule: EvalSchedule, spec: Object) -> None:
    """Write the last good checkpoint into the gates that ask for it; without one, those gates are left out.

    By the URL of its outputs, which outlives the run; by the run's name only if it has no URL.
    """
    good = None if schedule.status is None else schedule.status.last_good
    place = None if good is None else good.output_url or run_name(schedule.metadata.name, good.digest)

    def resolved(gate: Object) -> Object | None:
        if gate.get("baseline") != LAST_GOOD:
            return gate
        return None if place is None else {**gate, "baseline": place}

    gates = [found for gate in spec.get("gates", ()) if (found := resolved(gate)) is not None]
    if gates:
        spec["gates"] = gates
    else:
        spec.pop("gates", None)
    if "gate" in spec and (only := resolved(spec.pop("gate"))) is not None:
        spec["gate"] = only


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
