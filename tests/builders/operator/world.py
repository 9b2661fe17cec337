"""A pretended cluster for the operator's pure tests: it takes decisions over, and what else happens is told to it.

Nothing here decides anything of the operator's: objects are what was applied, controllers act when a test says so.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from builders.operator.evalruns import evalrun_manifest

from evalrun_api import names
from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import schema_for
from evalrun_api.v1alpha1 import Condition, ConditionType, EvalRun, EvalRunStatus, find_condition
from evalrun_operator.certificates.issuing import Authority
from evalrun_operator.ledger_status import DatasetCounts, GateState, LedgerStatus, ReportedFigure, RunState
from evalrun_operator.lifecycle.decision import Decision
from evalrun_operator.lifecycle.reconcile import decide
from evalrun_operator.observation.record_parser import parse_record, select_own_objects
from evalrun_operator.observation.records import Baseline, KeptReplicas, KueueWord, ObjectKey, Observed
from evalrun_operator.policies.admission import QueuePosition
from evalrun_operator.policies.refusals import WriteFailure
from evalrun_operator.policies.troubles import Trouble, classify_trouble
from evalrun_operator.resources.run_tokens import RunTokens
from evalrun_operator.settings import OperatorSettings
from evalrun_runtime.exits import EndCause
from evalrun_runtime.termination import TerminationMessage

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
UID = "0f3b2c1a-1111-2222-3333-444455556666"
WORKLOADS = {"StatefulSet", "Deployment"}
JOBS = {"Job", "RayJob"}
Manifest = dict[str, Any]


def operator_settings(**fields: Any) -> OperatorSettings:
    return OperatorSettings.model_validate({"host": "127.0.0.1", **fields})


def evalrun(changes: dict[str, Any] | None = None, *, rollout: bool = True) -> EvalRun:
    """Return an EvalRun as the API server has it: defaults applied, with uid and times."""
    manifest = apply_defaults(schema_for("cluster"), evalrun_manifest(changes, rollout=rollout))
    manifest["metadata"] |= {
        "namespace": "evals", "uid": UID, "generation": 1, "creationTimestamp": START.isoformat(),
        "resourceVersion": "1",
    }  # fmt: skip
    return EvalRun.from_wire(manifest)


def trouble_told(text: str) -> Trouble:
    """Return the trouble of an event that is written as `Reason: message`."""
    reason, _, message = text.partition(": ")
    return classify_trouble(reason, message)


@dataclass
class World:
    """One run and everything around it."""

    run: EvalRun = field(default_factory=evalrun)
    settings: OperatorSettings = field(default_factory=lambda: operator_settings(backoff_seconds=10))
    now: datetime = START
    objects: dict[ObjectKey, Manifest] = field(default_factory=dict)
    token: str | None = None
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    judge_authority: Authority | None = None
    """Of the chart's judge, as far as the operator could read it."""
    total: int = 164
    generated: int = 0
    judged: int = 0
    not_judged: int = 0
    ledger_state: RunState | None = None
    """Said instead of what follows from the counts."""
    gate: GateState = GateState.PENDING
    attested_by: str = ""
    baseline: Baseline | None = None
    output_url: str = "s3://outputs/run"
    reachable: bool = True
    missing_kinds: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    place: QueuePosition = field(default_factory=QueuePosition)
    events: dict[str, str] = field(default_factory=dict)
    """Of objects that come up in silence the last warning, by name: its reason, a colon, and its message."""
    write_failures: Sequence[WriteFailure] | None = ()
    """Of the last reconciliation; None: another operator made that reconciliation."""
    kueue: dict[str, KueueWord] = field(default_factory=dict)
    """Of objects that Kueue holds back what it says, by name."""
    missing_groups: frozenset[str] = frozenset()
    kept: KeptReplicas | None = None
    """The replicas of the run's schedule."""
    told_to_end: str = ""
    stopped_by_user: bool = False
    paused: bool = False
    """Why the ledger was told to end the run."""
    obeys: bool = True
    """Whether the ledger ends the run when it is told to."""
    writes_early: bool = True
    """Whether the outputs of a run that is told to end are written by the next look."""
    busy: tuple[str, ...] | None = None
    """Ray's worker pods in which replicas hold GPUs, or an empty name for one that is being placed."""
    uids: int = 0
    decision: Decision | None = None
    history: list[EvalRunStatus] = field(default_factory=list)

    # What the operator does

    def step(self, writes: int | None = None) -> Decision:
        """Reconcile once; with `writes` it is killed after so many writes."""
        decision = self.decision = decide(self.run, self.observed(), self.settings, self.now, f"token-{self.uids}")
        actions = [*((self.delete, seen.ref) for seen in decision.delete)]
        for number, (action, ref) in enumerate(actions):
            if writes is not None and number >= writes:
                return decision
            action(ref)
        for seen in decision.abandon:
            self.objects.pop(seen.ref, None)
        for number, item in enumerate(decision.apply, start=len(actions)):
            if writes is not None and number >= writes:
                return decision
            self.apply(item)
        if decision.end_early and self.obeys and self.ledger() is not None:
            self.told_to_end = self.told_to_end or decision.end_early
        if writes is None:
            self.run = self.run.model_copy(update={"status": decision.status})
            self.history.append(decision.status)
        return decision

    def settle(self, limit: int = 30) -> "World":
        """Reconcile repeatedly until nothing changes any more."""
        for _ in range(limit):
            before = self.status
            decision = self.step()
            if not decision.apply and not decision.delete and decision.status == before:
                return self
        raise AssertionError(f"the operator does not come to rest: {self.status.to_wire()}")

    def observed(self) -> Observed:
        return Observed(
            select_own_objects(parse_record(item) for item in self.objects.values()),
            None if self.token is None else RunTokens({names.TOKEN_KEY: self.token}),
            self.ledger(),
            self.missing_kinds,
            self.baseline,
            self.place,
            {
                str(item["metadata"].get("uid")): trouble_told(self.events[ref.name])
                for ref, item in self.objects.items()
                if ref.name in self.events
            },
            missing_groups=self.missing_groups,
            write_failures=self.write_failures,
            judge_authority=self.judge_authority,
            kept=self.kept,
            kueue={
                str(item["metadata"].get("uid")): self.kueue[ref.name]
                for ref, item in self.objects.items()
                if ref.name in self.kueue
            },
        )

    def ledger(self) -> LedgerStatus | None:
        aggregator = self.objects.get(ObjectKey("StatefulSet", "run-aggregator"))
        if aggregator is None or not aggregator["status"].get("readyReplicas") or not self.reachable:
            return None
        done = self.generated == self.total and self.judged + self.not_judged == self.total
        state = RunState.JUDGING if self.generated == self.total else RunState.GENERATING
        if done:
            state = RunState.DEGRADED if self.not_judged else RunState.SUCCEEDED
        accepted = self.judged // 2
        figure = ReportedFigure(0.5, 0.42, 0.58) if done else None
        counts = DatasetCounts("humaneval", self.total, self.generated, self.judged, accepted, self.not_judged, figure)
        url = self.output_url if done else ""
        state = self.ledger_state or state
        if self.told_to_end:
            state = RunState.DEGRADED if self.writes_early else RunState.JUDGING
            url = self.output_url if self.writes_early else ""
        return LedgerStatus(
            state, (counts,), self.generated * 100, url, message="said the ledger", gpu_seconds=10.0 * accepted,
            ended_early=self.told_to_end, stopped_by_user=self.stopped_by_user, paused=self.paused,
            generating_seconds=5.0, working_seconds=8.0,
            gate=self.gate if done else GateState.PENDING, warnings=self.warnings,
            attested_by=self.attested_by if done else "",
            replica_hosts=None if self.busy is None else tuple(self.host_of(name) for name in self.busy),
        )  # fmt: skip

    def host_of(self, pod: str) -> str:
        """Return a pod's address; an empty one of no pod."""
        return str(self.objects[ObjectKey("Pod", pod)]["status"]["podIP"]) if pod else ""

    # What the API server does

    def apply(self, item: Manifest) -> None:
        if item["kind"] == "Secret":
            name, values = item["metadata"]["name"], item["stringData"]
            self.secrets.setdefault(name, values)
            self.token = self.token or values.get(names.TOKEN_KEY)
            return
        ref = ObjectKey(item["kind"], item["metadata"]["name"])
        known = self.objects.get(ref)
        new = copy.deepcopy(item)
        if known is None:
            self.uids += 1
            new["metadata"] |= {"uid": f"uid-{self.uids}", "generation": 1}
            new["status"] = {}
        else:
            same = known["spec"] == new.get("spec") if "spec" in known else True
            new["metadata"] |= {
                "uid": known["metadata"]["uid"], "generation": known["metadata"]["generation"] + (not same),
            }  # fmt: skip
            new["status"] = known["status"]
        self.objects[ref] = new

    def delete(self, ref: ObjectKey) -> None:
        """Ask for deletion; `finalize` makes it happen."""
        if ref in self.objects:
            self.objects[ref]["metadata"].setdefault("deletionTimestamp", self.now.isoformat())

    # What else happens

    def finalize(self) -> "World":
        """Let everything go whose deletion was asked for, with the pods that it owns."""
        gone = [ref for ref, item in self.objects.items() if "deletionTimestamp" in item["metadata"]]
        for ref in gone:
            if ref.kind == "Pod" and "nodeName" in self.objects.get(ref, {}).get("spec", {}):
                continue  # its node is lost
            for pod in self.pods_of(ref):
                if "nodeName" not in pod["spec"]:
                    self.objects.pop(ObjectKey("Pod", pod["metadata"]["name"]), None)
            self.objects.pop(ref, None)
        return self

    def tick(self, seconds: float) -> "World":
        self.now += timedelta(seconds=seconds)
        return self

    def services_up(self, *, ready: bool = True) -> "World":
        for ref, item in self.objects.items():
            if ref.kind in WORKLOADS:
                wanted = item["spec"].get("replicas", 1)
                count = wanted if ready else 0
                item["status"] = {
                    "observedGeneration": item["metadata"]["generation"],
                    "replicas": wanted, "updatedReplicas": wanted, "readyReplicas": count,
                }  # fmt: skip
        return self

    def add_pod(self, name: str, component: str, owner: ObjectKey, labels: dict[str, str], *, gpus: int = 0) -> None:
        ref = ObjectKey("Pod", name)
        if ref in self.objects:
            return
        self.uids += 1
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        self.objects[ref] = {
            "kind": "Pod",
            "metadata": {
                "name": name, "uid": f"uid-{self.uids}", "namespace": "evals",
                "labels": {
                    names.RUN_UID_LABEL: UID, names.RUN_LABEL: "run", names.COMPONENT_LABEL: component, **labels,
                },
                "annotations": {"owner": f"{owner.kind}/{owner.name}"},
                "ownerReferences": [{
                    "kind": owner.kind, "name": owner.name, "uid": self.objects[owner]["metadata"]["uid"],
                    "controller": True,
                }],
            },
            "spec": {"containers": [{"resources": {"limits": limits}}]},
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "podIP": f"10.0.0.{self.uids}",
            },
        }  # fmt: skip

    def pods_of(self, ref: ObjectKey) -> list[Manifest]:
        owner = f"{ref.kind}/{ref.name}"
        return [item for item in self.objects.values() if item["metadata"]["annotations"].get("owner") == owner]

    def kuberay(self, *, usable: bool = True, ready: int | None = None) -> "World":
        """Have KubeRay make its clusters' pods, and say that they are up (or not yet), or only so many workers.

        Pods that it is told to delete are on their way out; where more are left than there should be, it takes any.
        """
        for ref, item in list(self.objects.items()):
            if ref.kind != "RayCluster" or "deletionTimestamp" in item["metadata"]:
                continue
            group = item["spec"]["workerGroupSpecs"][0]
            ray = {"ray.io/cluster": ref.name}
            if usable:
                self.add_pod(f"{ref.name}-head", names.RAY, ref, {**ray, "ray.io/node-type": "head"})
                named = group.get("scaleStrategy", {}).get("workersToDelete", [])
                there = [pod for pod in self.workers(ref.name) if pod not in named]
                for pod in [*named, *there[: max(0, len(there) - group["replicas"])]]:
                    self.delete(ObjectKey("Pod", pod))
                for _ in range(group["replicas"] - len(there)):
                    name = f"{ref.name}-worker-{self.uids}"
                    self.add_pod(name, names.RAY, ref, {**ray, "ray.io/node-type": "worker"}, gpus=8)
            count = (group["replicas"] if ready is None else ready) if usable else 0
            begun = "ready" if count == group["replicas"] else ""
            item["status"] = {
                "observedGeneration": item["metadata"]["generation"],
                "state": item.get("status", {}).get("state") or begun,  # it never goes back
                "readyWorkerReplicas": count,
                "conditions": [{"type": "HeadPodReady", "status": "True" if usable else "False"}],
            }
        return self

    def replace_head(self) -> "World":
        """Have each cluster's head die and come back as another pod."""
        for ref in self.heads():
            self.uids += 1
            self.objects[ref]["metadata"]["uid"] = f"uid-{self.uids}"
        return self

    def evict_head(self) -> "World":
        """Have the cluster take each Ray head away, as a drained node does: the pod goes, marked as disrupted."""
        disruption = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        for ref in self.heads():
            self.objects[ref]["status"]["conditions"] = [disruption]
            self.delete(ref)
        return self

    def lose_node(self, component: str, *, seconds: float = 60.0) -> "World":
        """Have the node of a component's pods fall silent: they are deleted, and nobody confirms their end.

        Args:
            component: whose pods are on that node.
            seconds: from then on; the grace period is half a minute.
        """
        disruption = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        for ref, item in self.objects.items():
            if ref.kind == "Pod" and item["metadata"]["labels"][names.COMPONENT_LABEL] == component:
                item["status"] = {**item["status"], "conditions": [disruption, {"type": "Ready", "status": "False"}]}
                item["spec"] = {**item["spec"], "nodeName": "node-2"}
                item["metadata"]["deletionTimestamp"] = (self.now + timedelta(seconds=30)).isoformat()
        return self.tick(seconds)

    def restart_head(self) -> "World":
        """Have each head's container end and start again in its pod."""
        for ref in self.heads():
            status = self.objects[ref]["status"]
            known = status.get("containerStatuses", [{"restartCount": 0}])[0]["restartCount"]
            status["containerStatuses"] = [{"name": "ray-head", "ready": True, "restartCount": known + 1}]
        return self

    def heads(self) -> list[ObjectKey]:
        return [ref for ref in self.objects if ref.kind == "Pod" and ref.name.endswith("-head")]

    def jobs_run(self) -> "World":
        for ref, item in list(self.objects.items()):
            if ref.kind == "Job" and "deletionTimestamp" not in item["metadata"] and not item["status"]:
                self.add_pod(f"{ref.name}-x", names.GENERATOR, ref, {})
        return self

    def end_attempt(self, *, failed: bool, cause: EndCause | None = None) -> "World":
        """Let the running attempt end; with a cause it leaves a record of it."""
        for ref in self.live_attempts():
            item = self.objects[ref]
            if ref.kind == "Job":
                kind = "Failed" if failed else "Complete"
                item["status"] = {
                    "conditions": [{
                        "type": kind, "status": "True", "reason": "BackoffLimitExceeded" if failed else "",
                        "lastTransitionTime": self.now.isoformat(),
                    }]
                }  # fmt: skip
                for pod in self.pods_of(ref):
                    pod["status"] = {"phase": "Failed" if failed else "Succeeded"}
                    if cause is not None:
                        message = TerminationMessage(cause, "as the test says").to_json()
                        ended = {"terminated": {"exitCode": 1, "message": message}}
                        pod["status"]["containerStatuses"] = [{"name": "generator", "state": ended}]
            else:
                item["status"] = {
                    "jobStatus": "FAILED" if failed else "SUCCEEDED", "jobDeploymentStatus": "Complete",
                    "endTime": self.now.isoformat(), "message": "generator exit code 1" if failed else "",
                }  # fmt: skip
        return self

    def generate_all(self) -> "World":
        self.generated = self.total
        return self

    def judge_all(self, *, not_judged: int = 0) -> "World":
        self.judged, self.not_judged = self.total - not_judged, not_judged
        return self

    # What is asked of it

    @property
    def status(self) -> EvalRunStatus:
        return self.run.status or EvalRunStatus.model_validate({})

    def condition(self, kind: ConditionType) -> Condition:
        found = find_condition(self.status, kind)
        if found is None:
            raise AssertionError(f"no condition {kind} in {self.status.to_wire()}")
        return found

    def reason(self, kind: ConditionType) -> str:
        return self.condition(kind).reason

    def of_kind(self, *kinds: str) -> list[str]:
        return sorted(
            ref.name
            for ref, item in self.objects.items()
            if ref.kind in kinds and "deletionTimestamp" not in item["metadata"]
        )

    def workers(self, cluster: str) -> list[str]:
        """Return a RayCluster's worker pods, those on their way out too."""
        return sorted(ref.name for ref in self.objects if ref.name.startswith(f"{cluster}-worker-"))

    def live_attempts(self) -> list[ObjectKey]:
        """Return attempts that have not ended, those on their way out too."""
        return [ref for ref, item in self.objects.items() if ref.kind in JOBS and not item["status"]]

    def gpu_pods(self) -> list[str]:
        return [
            ref.name
            for ref, item in self.objects.items()
            if ref.kind == "Pod"
            and "nvidia.com/gpu" in item["spec"]["containers"][0]["resources"]["limits"]
            and "deletionTimestamp" not in item["metadata"]
        ]

    def change_spec(self, **fields: Any) -> "World":
        spec = self.run.spec.model_copy(update=fields)
        generation = (self.run.metadata.generation or 0) + 1
        metadata = self.run.metadata.model_copy(update={"generation": generation})
        self.run = self.run.model_copy(update={"spec": spec, "metadata": metadata})
        return self

    def copy(self) -> "World":
        return replace(self, objects=copy.deepcopy(self.objects), history=list(self.history))


def generating(
    *,
    rollout: bool = True,
    changes: dict[str, Any] | None = None,
    baseline: Baseline | None = None,
    **settings: Any,
) -> World:
    fields = {"backoff_seconds": 10, **settings}
    world = World(run=evalrun(changes, rollout=rollout), settings=operator_settings(**fields), baseline=baseline)
    world.settle().services_up().settle().kuberay().settle().kuberay().jobs_run().settle()  # first the least workers
    if not world.live_attempts():
        raise AssertionError(f"no attempt runs: {world.status.to_wire()}")
    return world
