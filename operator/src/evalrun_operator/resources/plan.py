"""What every object of a run is made from, and the metadata that they all carry."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import API_VERSION, KIND, EvalRunSpec
from evalrun_operator.kinds import KINDS, SECRET
from evalrun_operator.settings import OperatorSettings

Object = dict[str, Any]
"""A manifest as JSON: its schema is the API server's."""


@dataclass(frozen=True)
class RunIdentity:
    """Which EvalRun it is."""

    name: str
    namespace: str
    uid: str
    created: datetime


@dataclass(frozen=True)
class RunPlan:
    """A run, its spec, the operator's settings and the run's token."""

    run: RunIdentity
    spec: EvalRunSpec
    settings: OperatorSettings
    token: str
    baseline_url: str | None = None
    """Where the gate's baseline lies, where the spec names an EvalRun."""

    @property
    def baseline(self) -> str | None:
        """The URL of the gate's baseline; None without a gate."""
        gate = self.spec.gate
        return None if gate is None else self.baseline_url or gate.baseline

    @property
    def token_digest(self) -> str:
        """A digest of the token that tells nothing about it: the token has 256 random bits."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:12]

    def labels(self, component: str) -> dict[str, str]:
        """Give the labels of a component's objects and pods."""
        return {
            "app.kubernetes.io/name": "evalrun",
            "app.kubernetes.io/managed-by": names.FIELD_MANAGER,
            names.RUN_LABEL: self.run.name,
            **self.selector(component),
        }

    def selector(self, component: str) -> dict[str, str]:
        """Give the labels by which a component's pods are selected."""
        return {names.RUN_UID_LABEL: self.run.uid, names.COMPONENT_LABEL: component}

    def made(
        self, kind: str, name: str, component: str, annotations: dict[str, str] | None = None, **fields: object
    ) -> Object:
        """Give an object that the run owns, its digest among its annotations."""
        metadata: Object = {
            "name": name,
            "namespace": self.run.namespace,
            "labels": self.labels(component),
            "annotations": dict(annotations or {}),
            "ownerReferences": [owner_reference(self.run)],
        }
        known = SECRET if kind == SECRET.kind else KINDS[kind]
        return stamped({"apiVersion": known.api_version, "kind": kind, "metadata": metadata, **fields})


def owner_reference(run: RunIdentity) -> Object:
    """Give the reference that makes the garbage collector delete an object with its run."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": run.name,
        "uid": run.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def without_owner(manifest: Object) -> Object:
    """Give the object as one that outlives its run."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
    return stamped({**manifest, "metadata": metadata})


def stamped(manifest: Object) -> Object:
    """Give the object with a digest of itself in its annotations."""
    metadata = manifest["metadata"]
    annotations = {key: value for key, value in metadata["annotations"].items() if key != names.APPLIED_ANNOTATION}
    plain = {**manifest, "metadata": {**metadata, "annotations": annotations}}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    annotations[names.APPLIED_ANNOTATION] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return plain


def timestamp(moment: datetime) -> str:
    """Give a time as the names of output folders hold it: YYYYMMDD_HHMMSS, UTC."""
    return moment.astimezone(UTC).strftime("%Y%m%d_%H%M%S")
