"""The pod through which outputs on a volume are read once the aggregator has gone. Pure.

It mounts the volume read-only, does nothing by itself, and ends after `LIFE_SECONDS`, even if its creator is gone.
"""

from evalrun_api import names
from evalrun_api.v1alpha1 import API_VERSION, KIND, EvalRun
from evalrun_cluster.objects import Object

LIFE_SECONDS = 900
READER = "reader"
USER = 10001
"""User ID of the images of Dockerfile.judge."""
IMAGE_SETTING = "aggregatorImage"
"""Field of `status.settings` with the image of the run's aggregator, which can send outputs."""


def reader_pod(run: EvalRun, claim: str) -> Object:
    """Return the manifest; it is restricted, and is deleted with its EvalRun at the latest.

    Args:
        run: with its status.
        claim: the PersistentVolumeClaim, mounted where the aggregator had it.

    Raises:
        KeyError: the status does not say which image the aggregator had.
    """
    metadata, spec = run.metadata, run.spec
    image = {} if run.status is None else run.status.settings
    ledger = names.ledger_claim(metadata.name, str(metadata.uid))
    directory = names.LEDGER_DIRECTORY if claim == ledger else names.claim_directory(claim)
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": metadata.name, "uid": metadata.uid}
    container = {
        "name": READER,
        "image": image[IMAGE_SETTING],
        "command": ["python", "-c", f"import time; time.sleep({LIFE_SECONDS})"],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "outputs", "mountPath": directory, "readOnly": True}],
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{metadata.name}-results-",
            "namespace": metadata.namespace,
            "labels": {**spec.pods.labels, "app.kubernetes.io/name": "evalrun", names.RUN_LABEL: metadata.name},
            "annotations": dict(spec.pods.annotations),
            "ownerReferences": [owner],
        },
        "spec": {
            "activeDeadlineSeconds": LIFE_SECONDS,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
            },
            "imagePullSecrets": [{"name": secret.name} for secret in spec.image_pull_secrets or ()],
            "containers": [container],
            "volumes": [{"name": "outputs", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}],
        },
    }  # fmt: skip
