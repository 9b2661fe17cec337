"""Small frozen records of observed objects, and the facts that a reconciliation knows about a run.

A thousand runs have tens of thousands of objects, whose full manifests would fill the operator's memory.
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
    """Whether the EvalRun, or the EvalSchedule of kept replicas, controls the object directly, or it is the ledger's
    claim. Other objects are created by a controller."""
    component: str
    applied: str
    """The digest that was applied with the object."""
    deleted_at: datetime | None
    """Time by which the object should be gone: the request of its deletion plus, for a pod, its grace period."""
    attempt: int = 0
    restarts: int = 0
    judge_authority: str = ""
    """For an aggregator, the value of its annotation about the judge's authority."""
    detail: "Workload | ObservedCluster | Attempt | Pod | Claim | Policy | Scaler | None" = None
    controller: OwnerController | None = None
    created_at: datetime | None = None

    @property
    def deleting(self) -> bool:
        """Whether the object is being deleted."""
        return self.deleted_at is not None


@dataclass(frozen=True, slots=True)
class Workload:
    """State of a StatefulSet or Deployment."""

    wanted: int
    ready: int
    settled: bool
    """Whether the controller has seen the newest spec, and every pod is up to date and ready."""
    trouble: str = ""
    """Reason why pods of a Deployment cannot be created at all, e.g. pod security or a quota; empty if they can."""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """State of a RayCluster."""

    usable: bool
    """Whether the head and enough workers to begin with are up now. (`state: ready` never goes back; see `begun`.)"""
    suspended: bool
    """Whether Kueue holds the cluster back, or has withdrawn its quota."""
    failing: bool
    """Whether KubeRay cannot create the pods; it keeps trying."""
    message: str
    workers: int = 0
    """Number of worker pods that the cluster should have."""
    leaving: tuple[str, ...] = ()
    """Worker pods that KubeRay was told to delete."""
    begun: bool = True
    """Whether all pods have run at once since the cluster was created or last suspended: KubeRay submits jobs only
    then."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """State of a Job or RayJob."""

    outcome: str
    """running, succeeded or failed."""
    message: str
    finished_at: datetime | None
    cluster: str
    """RayCluster of a RayJob, or of a Job that uses kept replicas; empty in simple mode."""
    head_uid: str
    """Value of `head_life` of the head that the attempt was submitted to."""
    suspended: bool = False
    """For a Job, whether Kueue holds it back, or has withdrawn its quota."""


@dataclass(frozen=True, slots=True)
class Pod:
    """State of a pod."""

    node_type: str
    """head or worker, for pods of a RayCluster."""
    cluster: str
    ended: bool
    ready: bool
    trouble: str
    """Reason, for people, why the pod does not run; empty if it runs."""
    exit_code: int | None
    """Exit code of the last container that ended with another code than 0."""
    restarts: int
    failed: str = ""
    """Name of the container of `exit_code`."""
    trouble_kind: TroubleKind = TroubleKind.LASTING
    """Kind of `trouble`."""
    last_words: TerminationMessage | None = None
    """The record that the container of `exit_code` left; None if it left plain text, or nothing."""
    host: str = ""
    """Address of the pod; empty before it has an address."""
    disrupted: bool = False
    """Whether the cluster took the pod away: its node was drained or ran short, or a pod of higher priority replaced
    it."""
    tainted: bool = False
    """Whether the pod was deleted because of a taint of its node: the node is lost, or is not ready."""
    ready_since: datetime | None = None
    """None while the pod is not ready."""
    node: str = ""
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scaler:
    """State of an autoscaler."""

    trouble: str
    """Reason why the autoscaler does not scale; empty while it scales, or has not tried yet."""
    since: datetime | None = None
    """Start of the trouble."""


@dataclass(frozen=True, slots=True)
class Claim:
    """State of a PersistentVolumeClaim."""

    bound: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """State of a NetworkPolicy."""

    spec: str
    """Digest of the spec, which somebody may have edited."""


@dataclass(frozen=True)
class Baseline:
    """The EvalRun that a gate names as its baseline."""

    phase: str
    """Phase in the run's status; empty if there is no such run."""
    output_url: str = ""
    """Empty if the run has no outputs yet."""


@dataclass(frozen=True, slots=True)
class KueueWord:
    """Kueue's report about an object that it holds back."""

    message: str
    """Empty while Kueue has not looked at the object."""
    admissible: bool = True
    """Whether waiting is enough: the object is admitted once there is quota."""


@dataclass(frozen=True, slots=True)
class KeptReplicas:
    """The replicas that a run uses and its EvalSchedule keeps."""

    schedule_uid: str
    cluster: str
    """The RayCluster while it is this run's turn; otherwise empty."""
    image: str
    message: str
    """What the run waits for while it is not its turn."""
    auth: str = ""
    """Value of the setting `ray_auth` that the cluster was created with; empty if an earlier release created it."""
    crashed: str = ""
    """The last RayCluster whose head ended during a run's turn."""


@dataclass(frozen=True)
class Observed:
    """The facts that a reconciliation knows about a run."""

    objects: Mapping[ObjectKey, ObservedObject] = field(default_factory=dict)
    tokens: RunTokens | None = None
    """Contents of the run's Secret; None if it has none yet."""
    ledger: LedgerStatus | None = None
    """None if the aggregator is not up or does not reply."""
    missing_kinds: frozenset[str] = frozenset()
    """Kinds that the cluster does not serve: KubeRay or KEDA is not installed."""
    baseline: Baseline | None = None
    """Looked up if the gate names an EvalRun and the run has not started yet."""
    place: QueuePosition = field(default_factory=QueuePosition)
    """Position of the run among those that may be active."""
    warnings: Mapping[str, Trouble] = field(default_factory=dict)
    """Last warning event, by uid, of objects that do not come up and do not report the reason themselves."""
    resync: bool = False
    """Whether every object is applied again, whatever the digests are."""
    missing_groups: frozenset[str] = frozenset()
    """API groups that autoscalers need for their metrics and that the cluster does not serve."""
    kueue: Mapping[str, KueueWord] = field(default_factory=dict)
    """Kueue's report, by uid, about objects that it holds back."""
    judge_authority: Authority | None = None
    """Authority of the chart's judge, if the run uses that judge with a certificate of ours. None also while it cannot
    be read."""
    ledger_error: str = ""
    """Error of the aggregator, or on the way to it, although its pod is ready; empty without an error."""
    kept: KeptReplicas | None = None
    """None if the run starts its own replicas, or needs none."""
    write_failures: Sequence[WriteFailure] | None = None
    """Failed writes of the last reconciliation that reported its writes in the condition Applied. None if this operator
    has made no such reconciliation yet, so that the condition is another operator's."""

    def find(self, kind: str, name: str) -> ObservedObject | None:
        """Return an object of ours that exists and is not being deleted."""
        seen = self.objects.get(ObjectKey(kind, name))
        return None if seen is None or seen.deleting else seen

    def workload(self, kind: str, name: str) -> Workload | None:
        """Return the state of a StatefulSet or Deployment."""
        seen = self.find(kind, name)
        return seen.detail if seen is not None and isinstance(seen.detail, Workload) else None

    def find_by_kind(self, *kinds: str) -> list[ObservedObject]:
        """Return all objects of these kinds by attempt and name, including those that are being deleted."""
        found = (seen for seen in self.objects.values() if seen.ref.kind in kinds)
        return sorted(found, key=lambda seen: (seen.attempt, seen.ref.name))

    def pods(self, component: str) -> list[tuple[ObservedObject, Pod]]:
        """Return the pods of a component, including those that are being deleted."""
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
        """List why pods of some components cannot be created or do not run, an item per object.

        Args:
            components: the components of the pods.
            made_before: leave out younger objects; None: leave out none.
            with_ended: include pods that have ended, such as those of a failed attempt.
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
        """Return the suspended RayClusters and Jobs: Kueue has not admitted them, or has withdrawn their quota."""
        return [
            seen
            for seen in self.find_by_kind("RayCluster", "Job")
            if not seen.deleting and isinstance(seen.detail, ObservedCluster | Attempt) and seen.detail.suspended
        ]

    def silent(self) -> list[ObservedObject]:
        """Return the objects that do not come up and do not report why: only events name the reason.

        A StatefulSet and a Job have no condition for a refused pod, a claim none for a missing StorageClass, and a pod
        none for a volume that cannot be mounted.
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
