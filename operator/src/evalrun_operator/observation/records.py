"""Small frozen records of observed objects, and the facts that one reconciliation knows about a run.

A thousand runs have tens of thousands of objects; as whole they would fill the operator's memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from evalrun_operator.certificates.issuing import Authority
from evalrun_operator.ledger_status import LedgerStatus
from evalrun_operator.policies.admission import QueuePosition
from evalrun_operator.policies.refusals import WriteFailure
from evalrun_operator.policies.troubles import Trouble, TroubleKind
from evalrun_operator.resources.run_tokens import RunTokens
from evalrun_runtime.termination import TerminationMessage


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Names an object within its namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class OwnerController:
    """The controller owner reference of an object."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object that was created for a run."""

    ref: ObjectKey
    uid: str
    owned: bool
    """The EvalRun, or the EvalSchedule of kept replicas, controls it directly, or it is the ledger's claim: the
    operator's own work, not a controller's."""
    component: str
    applied: str
    """The digest that it was applied with."""
    deleted_at: datetime | None
    """Time by which it was to be gone: when its deletion was requested and, for a pod, its grace period after that."""
    attempt: int = 0
    restarts: int = 0
    judge_authority: str = ""
    """Of an aggregator: what the annotation says."""
    detail: "Workload | ObservedCluster | Attempt | Pod | Claim | Policy | Scaler | None" = None
    controller: OwnerController | None = None
    created_at: datetime | None = None

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
    """Reason why pods of a Deployment cannot be created at all, e.g. pod security or a quota; empty if they can."""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """A RayCluster's state."""

    usable: bool
    """The head and enough workers to begin with are up now. (`state: ready` never goes back: see `begun`.)"""
    suspended: bool
    """Kueue holds it back, or took its place away."""
    failing: bool
    """KubeRay cannot make its pods; it goes on trying."""
    message: str
    workers: int = 0
    """Worker pods that it is to have."""
    leaving: tuple[str, ...] = ()
    """Worker pods that KubeRay was told to delete."""
    begun: bool = True
    """All its pods have run at once since it was made or was last suspended: only then KubeRay submits a job to it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A Job's or RayJob's state."""

    outcome: str
    """running, succeeded or failed."""
    message: str
    finished_at: datetime | None
    cluster: str
    """Of a RayJob, and of a Job that uses kept replicas; empty in simple mode."""
    head_uid: str
    """Value of `head_life` of the head that it was submitted to."""
    suspended: bool = False
    """Of a Job: Kueue holds it back, or took its place away."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod's state."""

    node_type: str
    """head or worker, of a RayCluster's pods."""
    cluster: str
    ended: bool
    ready: bool
    trouble: str
    """Reason, for people, why it does not run; empty if it does."""
    exit_code: int | None
    """Of the last container that ended otherwise than with 0."""
    restarts: int
    failed: str = ""
    """The container of `exit_code`."""
    trouble_kind: TroubleKind = TroubleKind.LASTING
    """Of `trouble`."""
    last_words: TerminationMessage | None = None
    """The record that the container of `exit_code` left; None where it left plain text, or nothing."""
    host: str = ""
    """Its address; empty before it has one."""
    disrupted: bool = False
    """The cluster took it away: its node was drained or ran short, or a pod of higher priority took its place."""
    tainted: bool = False
    """It was deleted because of a taint of its node: the node is lost, or is not ready."""
    ready_since: datetime | None = None
    """None while it is not ready."""
    node: str = ""
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scaler:
    """An autoscaler's state."""

    trouble: str
    """Reason why it does not scale; empty while it does, or has not tried yet."""
    since: datetime | None = None
    """Since when."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim's state."""

    bound: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """A NetworkPolicy's state."""

    spec: str
    """Digest of its spec, which somebody may have edited."""


@dataclass(frozen=True)
class Baseline:
    """The EvalRun that a gate names as its baseline."""

    phase: str
    """As its status has it; empty where there is no such run."""
    output_url: str = ""
    """Empty where it has no outputs (yet)."""


@dataclass(frozen=True, slots=True)
class KueueWord:
    """Kueue's word on an object that it holds back."""

    message: str
    """Empty while it has not looked at it."""
    admissible: bool = True
    """Whether waiting is enough: it is admitted once there is quota."""


@dataclass(frozen=True, slots=True)
class KeptReplicas:
    """The replicas of a run that are its EvalSchedule's."""

    schedule_uid: str
    cluster: str
    """The RayCluster, while it is this run's turn; empty while it is not."""
    image: str
    message: str
    """What it waits for, while it is not its turn."""
    auth: str = ""
    """Whether Ray has a token, as the setting `ray_auth` says it; empty where an earlier release has made it."""
    crashed: str = ""
    """The last RayCluster whose head ended in a run's turn."""


@dataclass(frozen=True)
class Observed:
    """Everything that one reconciliation knows about a run."""

    objects: Mapping[ObjectKey, ObservedObject] = field(default_factory=dict)
    tokens: RunTokens | None = None
    """Contents of the run's Secret; None if it has none yet."""
    ledger: LedgerStatus | None = None
    """None where the aggregator is not up or does not answer."""
    missing_kinds: frozenset[str] = frozenset()
    """Kinds that the cluster does not serve: KubeRay or KEDA is not installed."""
    baseline: Baseline | None = None
    """Looked up where the gate names an EvalRun and the run has not started yet."""
    place: QueuePosition = field(default_factory=QueuePosition)
    """Position of the run among those that may be active."""
    warnings: Mapping[str, Trouble] = field(default_factory=dict)
    """By uid, the last warning that Kubernetes recorded of an object that does not come up and says nothing itself."""
    resync: bool = False
    """Apply everything again, whatever the digests say."""
    missing_groups: frozenset[str] = frozenset()
    """API groups that an autoscaler measures by, and the cluster does not serve."""
    kueue: Mapping[str, KueueWord] = field(default_factory=dict)
    """By uid, what Kueue says of an object that it holds back."""
    judge_authority: Authority | None = None
    """Of the chart's judge, where the run uses it by a certificate of ours; None where it cannot be read now, too."""
    ledger_error: str = ""
    """Error of the aggregator's, or on the way to it, although its pod is ready; empty where there is none."""
    kept: KeptReplicas | None = None
    """None where the run starts its own replicas, or needs none."""
    write_failures: Sequence[WriteFailure] | None = None
    """Of the last reconciliation that told of its writes in the condition Applied; None where this operator has made
    none yet, and the condition is another operator's."""

    def find(self, kind: str, name: str) -> ObservedObject | None:
        """Return an object of ours that is there and not on its way out."""
        seen = self.objects.get(ObjectKey(kind, name))
        return None if seen is None or seen.deleting else seen

    def workload(self, kind: str, name: str) -> Workload | None:
        """Return the state of a StatefulSet or Deployment."""
        seen = self.find(kind, name)
        return seen.detail if seen is not None and isinstance(seen.detail, Workload) else None

    def find_by_kind(self, *kinds: str) -> list[ObservedObject]:
        """Return every object of these kinds, those on their way out too, by name."""
        found = (seen for seen in self.objects.values() if seen.ref.kind in kinds)
        return sorted(found, key=lambda seen: (seen.attempt, seen.ref.name))

    def pods(self, component: str) -> list[tuple[ObservedObject, Pod]]:
        """Return the pods of a component, those on their way out too."""
        return [
            (seen, seen.detail)
            for seen in self.find_by_kind("Pod")
            if seen.component == component and isinstance(seen.detail, Pod)
        ]

    def troubles(self, *components: str) -> str:
        """Describe why pods of some components cannot be created or do not run; empty if they all do."""
        return "; ".join(trouble.text for trouble in self.trouble_list(*components)[:3])

    def trouble_list(
        self, *components: str, made_before: datetime | None = None, with_ended: bool = True
    ) -> list[Trouble]:
        """List why pods of some components cannot be created or do not run, one item per object.

        Args:
            components: whose pods.
            made_before: leave out objects that are younger; None: none is left out.
            with_ended: include pods that have ended, such as those of an attempt that failed.
        """
        found = set()
        for seen in self.find_by_kind("Deployment", "StatefulSet", "Job", "PersistentVolumeClaim", "RayCluster", "Pod"):
            if made_before is not None and seen.created_at is not None and seen.created_at > made_before:
                continue
            if not with_ended and isinstance(seen.detail, Pod) and seen.detail.ended:
                continue
            if seen.component in components and not seen.deleting:
                trouble = _find_trouble(seen) or self.warnings.get(seen.uid)
                if trouble is not None:
                    found.add(replace(trouble, text=f"{seen.ref.name}: {trouble.text}"))
        return sorted(found, key=lambda trouble: trouble.text)

    def find_held(self) -> list[ObservedObject]:
        """Return the RayClusters and the Jobs that are suspended: Kueue has not admitted them, or took them back."""
        return [
            seen
            for seen in self.find_by_kind("RayCluster", "Job")
            if not seen.deleting and isinstance(seen.detail, ObservedCluster | Attempt) and seen.detail.suspended
        ]

    def silent(self) -> list[ObservedObject]:
        """Return the objects that do not come up and do not say why themselves: only events tell of them.

        A StatefulSet and a Job have no condition for a pod that is refused, a claim none for a missing StorageClass,
        and a pod none for a volume that cannot be mounted.
        """
        with_pods = {seen.component for seen in self.find_by_kind("Pod") if not seen.deleting}
        found = []
        for seen in self.find_by_kind("StatefulSet", "Job", "PersistentVolumeClaim", "Pod"):
            detail = seen.detail
            if seen.deleting:
                continue
            if isinstance(detail, Workload):
                waits = detail.wanted > 0 and seen.component not in with_pods
            elif isinstance(detail, Attempt):
                waits = detail.outcome == "running" and not detail.suspended and seen.component not in with_pods
            elif isinstance(detail, Pod):
                waits = not (detail.ready or detail.ended or detail.trouble)
            else:
                waits = isinstance(detail, Claim) and not detail.bound
            if waits:
                found.append(seen)
        return found


def _find_trouble(seen: ObservedObject) -> Trouble | None:
    detail = seen.detail
    if isinstance(detail, Pod) and detail.trouble:
        return Trouble(detail.trouble, detail.trouble_kind)
    return Trouble(detail.trouble) if isinstance(detail, Workload) and detail.trouble else None
