"""The inputs of all objects of a run, and the metadata that the objects share."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from evalrun_api import names
from evalrun_api.v1alpha1 import API_VERSION, KIND, SCHEDULE_KIND, EvalRunSpec, Gate, JudgeReference, Part, Placement
from evalrun_cluster.kinds import KINDS, SECRET
from evalrun_cluster.objects import Object, RunIdentity
from evalrun_operator.resources.changes import stamp_digests
from evalrun_operator.resources.run_tokens import RunTokens
from evalrun_operator.settings import OperatorSettings, SharedJudge


@dataclass(frozen=True)
class RunPlan:
    """A run, its spec, the operator's settings and the run's first token."""

    run: RunIdentity
    spec: EvalRunSpec
    settings: OperatorSettings
    token: str
    baseline_url: str | None = None
    """Address of the gate's baseline, if the spec names an EvalRun."""
    hop_tokens: bool = True
    """False for a run that began with a single token for all parts."""
    new_tokens: RunTokens | None = None
    """Tokens for the run's Secret, if it has none yet."""
    weights_on_claim: bool = True
    """Whether the claim of the model cache also stores a bucket's model; False for a run that began without it."""
    tls_unless_disabled: bool = True
    """Whether an unset `spec.tls` means Issued; False for a run that began when it meant Disabled."""
    leaves_lost_nodes: bool = True
    """Whether stateless pods leave a lost node soon; False for a run that began before that feature."""
    judge_authority: str = ""
    """Fingerprint of the authority of the chart's judge; empty if the run has another judge, or if it is unknown."""
    new_judge_certificate: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Files for the Secret with the run's certificate for that judge, if the Secret is to be created."""
    of_schedule: bool = False
    """Whether the objects are kept replicas: `run` is then the EvalSchedule that owns them."""
    kept_by: str = ""
    """Uid of the EvalSchedule whose replicas the run uses; empty if the run starts its own."""

    def find_baseline(self, gate: Gate) -> str | None:
        """Return the URL of a gate's baseline; None if the gate compares with an anchor."""
        return self.baseline_url or gate.baseline if gate.names_a_run else gate.baseline

    def placements(self, part: Part) -> tuple[Placement, ...]:
        """Return the placements of a part's pods in rising precedence, the chart's first."""
        rollout, workers = self.spec.rollout, Placement()
        if rollout is not None and part == "rayWorkers":
            workers = Placement(node_selector=rollout.node_selector, tolerations=rollout.tolerations)
        return (
            self.settings.placement.get(part, Placement()),
            workers,
            self.spec.placement.get(part, Placement()),
        )

    @property
    def judge_is_issued(self) -> bool:
        """Whether the operator issues the run's certificate for a shared judge."""
        return is_issued(self.spec.judge_ref, self.run.namespace, self.settings.shared_judge)

    @property
    def judge_tls_secret(self) -> str | None:
        """The Secret with the run's certificate for a shared judge; None: plain text."""
        reference = self.spec.judge_ref
        if self.judge_is_issued and self.judge_authority:
            return names.judge_tls_secret(self.run.name, self.judge_authority)
        return None if reference is None or reference.tls_secret_ref is None else reference.tls_secret_ref.name

    @property
    def tls(self) -> bool:
        """Whether the run's parts use mutual TLS. Runs with a single token began before TLS existed."""
        wanted = self.spec.tls or ("Issued" if self.tls_unless_disabled else "Disabled")
        return self.hop_tokens and (wanted == "Issued" or self.spec.tls_secret_refs is not None)

    def find_certificate(self, component: str) -> tuple[str, dict[str, str]]:
        """Return the Secret with a part's certificate, and the name of the file that each of its keys becomes."""
        given = self.spec.tls_secret_refs
        if given is not None:
            secrets = {
                names.AGGREGATOR: given.aggregator, names.JUDGE: given.gateway, names.SANDBOX: given.sandbox,
                names.GENERATOR: given.generator,
            }  # fmt: skip
            by_part = {part: secret.name for part, secret in secrets.items() if secret is not None}
            return by_part[component], {file: file for file in names.TLS_FILES}
        keys = (*names.certificate_keys(component), names.AUTHORITY_KEY)
        return names.token_secret(self.run.name), dict(zip(keys, names.TLS_FILES, strict=True))

    @property
    def token_digest(self) -> str:
        """A digest of the first token. It reveals nothing, because the token has 256 random bits."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:12]

    def labels(self, component: str) -> dict[str, str]:
        """Return the labels of a component's objects and pods."""
        owner = {names.SCHEDULE_LABEL if self.of_schedule else names.RUN_LABEL: self.run.name}
        kept = {names.KEPT_LABEL: self.kept_by} if self.kept_by and component == names.GENERATOR else {}
        return {
            "app.kubernetes.io/name": "evalrun",
            "app.kubernetes.io/managed-by": names.FIELD_MANAGER,
            **owner,
            **kept,
            **self.selector(component),
        }

    def selector(self, component: str) -> dict[str, str]:
        """Return the labels by which a component's pods are selected."""
        return {names.RUN_UID_LABEL: self.run.uid, names.COMPONENT_LABEL: component}

    def make_object(
        self, kind: str, name: str, component: str, annotations: dict[str, str] | None = None, **fields: object
    ) -> Object:
        """Return an object that the run owns, with its digest among its annotations."""
        metadata: Object = {
            "name": name,
            "namespace": self.run.namespace,
            "labels": self.labels(component),
            "annotations": dict(annotations or {}),
            "ownerReferences": [owner_reference(self.run, SCHEDULE_KIND if self.of_schedule else KIND)],
        }
        known = SECRET if kind == SECRET.kind else KINDS[kind]
        return stamp_digests({"apiVersion": known.api_version, "kind": kind, "metadata": metadata, **fields})


def dataset_files(dataset: Object) -> Iterator[tuple[Object, str, str]]:
    """Yield each file that a dataset of a spec names, as on the wire: its holder, the field, and the URL."""
    for key in ("source", "manifest", "promptTemplate"):
        if key in dataset:
            yield dataset, key, dataset[key]
    if "grader" in dataset:
        yield dataset["grader"], "path", dataset["grader"]["path"]


def owner_reference(run: RunIdentity, kind: str) -> Object:
    """Return the reference that makes the garbage collector delete an object with its owner."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": run.name,
        "uid": run.uid,
        "controller": True,
        # OwnerReferencesPermissionEnforcement would require a right on the schedule's finalizers.
        **({"blockOwnerDeletion": True} if kind == KIND else {}),
    }


def is_issued(reference: JudgeReference | None, namespace: str, judge: SharedJudge | None) -> bool:
    """Return whether the operator issues a run's certificate for the chart's judge: the run names no Secret."""
    if reference is None or judge is None or reference.tls_secret_ref is not None:
        return False
    return (reference.namespace or namespace, reference.name) == (judge.namespace, judge.gateway)


def drop_owner(manifest: Object) -> Object:
    """Return the object without an owner, so that it outlives its run."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
    return stamp_digests({**manifest, "metadata": metadata})


def timestamp(moment: datetime) -> str:
    """Return a time in the form of the names of output directories: YYYYMMDD_HHMMSS, UTC."""
    return moment.astimezone(UTC).strftime("%Y%m%d_%H%M%S")
