"""Reconciles schedules: observes, lets `reconcile` decide, and writes. Depends on no framework."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from pydantic import ValidationError

from evalrun_api import names
from evalrun_api.v1alpha1 import SCHEDULE_KIND, EvalSchedule
from evalrun_cluster.client import Cluster, refuse_foreign
from evalrun_cluster.errors import NameTakenError, RefusedError
from evalrun_cluster.kinds import EVAL_RUN
from evalrun_cluster.objects import Object, RunIdentity
from evalrun_operator.observation.children import Children, Key
from evalrun_operator.observation.record_parser import parse_record, select_own_objects
from evalrun_operator.observation.records import ObjectKey, Observed
from evalrun_operator.policies.allow_lists import find_refusal
from evalrun_operator.reconcilers.reconciler import Reconciler, ReconcileResult, read_object
from evalrun_operator.schedules.choice import make_listing_request
from evalrun_operator.schedules.decision import ObservedSchedule, ScheduleDecision
from evalrun_operator.schedules.job_state import ListingJob, parse_listing_job
from evalrun_operator.schedules.kept_objects import as_made, kept_cluster, kept_image, kept_policy, kept_rollout
from evalrun_operator.schedules.kept_replicas import ReplicaSituation, ReplicaStep
from evalrun_operator.schedules.merge_step import find_waiting_merge, merge_job_name
from evalrun_operator.schedules.metrics import ScheduleMetrics
from evalrun_operator.schedules.objects import (
    jobs_policy,
    make_eval_run,
    make_listing_job,
    make_merge_job,
    make_merged_run,
)
from evalrun_operator.schedules.reconcile import decide
from evalrun_operator.schedules.refusals import (
    drop_refused_listing,
    drop_refused_merge,
    drop_refused_merged_runs,
    drop_refused_replicas,
    drop_refused_runs,
)
from evalrun_operator.schedules.run_history import add_run_uids
from evalrun_operator.schedules.runs import ScheduledRun, find_schedule, is_same_run, parse_scheduled_run
from evalrun_operator.settings import OperatorSettings

logger = logging.getLogger(__name__)

JOB = "Job"
RAY_CLUSTER = "RayCluster"
ScheduleUid = tuple[str, str]
"""Namespace and uid of a schedule."""


def _make_uid(schedule: EvalSchedule) -> ScheduleUid:
    return schedule.metadata.namespace or "", schedule.metadata.uid or ""


class ScheduleController(Reconciler):
    """Works on schedules.

    Args:
        settings: the operator's settings.
        cluster: the API server.
        children: the known objects of the replicas that schedules keep.
        metrics: exports the schedules.
        wake: requests a reconciliation of a schedule after a delay in seconds.
        now: returns the time, with its zone.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        cluster: Cluster,
        children: Children,
        metrics: ScheduleMetrics,
        wake: Callable[[Key, float], None],
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(SCHEDULE_KIND, cluster, {}, wake, now)
        self._settings = settings
        self._children = children
        self._metrics = metrics
        self._runs: dict[ScheduleUid, dict[str, ScheduledRun]] = {}
        """Runs by the schedule's namespace and uid, and the run's uid."""
        self._fenced: dict[ScheduleUid, datetime] = {}
        """Time at which the NetworkPolicy of a schedule's replicas was last compared."""

    def saw_run(self, manifest: Object, *, gone: bool = False) -> None:
        """Store the state of an EvalRun, unless no schedule created it."""
        uid, namespace = manifest["metadata"]["uid"], manifest["metadata"]["namespace"]
        if gone:
            for owner_uid, runs in list(self._runs.items()):
                if owner_uid[0] == namespace and uid in runs:
                    self._run_went(owner_uid, runs, uid)
            return
        owner = find_schedule(manifest)
        if owner is None:
            return
        try:
            seen = parse_scheduled_run(manifest)
        except ValidationError as error:
            logger.warning("EvalRun %s cannot be read: %s", manifest["metadata"]["name"], error.errors()[0]["msg"])
            return
        # An owner reference names no namespace: a run of another namespace could name any schedule's uid.
        runs = self._runs.setdefault((namespace, owner[1]), {})
        if seen is not None and runs.get(uid) != seen:
            runs[uid] = seen
            self._wake((namespace, owner[0]), 0.0)

    def _asks_for_more(self, manifest: Object, known: Object) -> bool:
        notes = [(one["metadata"].get("annotations") or {}).get(names.TRIGGER_ANNOTATION) for one in (known, manifest)]
        return notes[0] != notes[1] or super()._asks_for_more(manifest, known)

    async def _pass(self, key: Key, manifest: Object) -> ReconcileResult:
        if manifest["metadata"].get("deletionTimestamp"):
            await self._release_all(key, manifest["metadata"]["uid"])
            return ReconcileResult()
        schedule = read_object(EvalSchedule, manifest)
        now = self._now()
        observed = replace(await self._observe(schedule), refusal=self._find_refusal(schedule))
        decision = decide(schedule, observed, now)
        # Replaced runs are deleted before the new runs are created.
        for run in decision.delete_runs:
            await self._cluster.delete(EVAL_RUN.kind, run.name, key[0], run.uid)
        decision = await self._make_jobs(schedule, observed, decision, now)
        if decision.replicas is not None:
            decision = await self._keep_replicas(schedule, decision, decision.replicas, now)
        # The status is written after the runs: a run that was created without being recorded is found again by its
        # name.
        failures, uids = await self._start(schedule, decision)
        unmade, uids_of_merged = await self._start_merged(schedule, decision)
        decision = replace(decision, status=add_run_uids(decision.status, {**uids, **uids_of_merged}))
        if failures:
            decision = drop_refused_runs(decision, failures, schedule, now)
        if unmade:
            decision = drop_refused_merged_runs(decision, unmade, schedule, now)
        # The schedule was deleted meanwhile, so nothing of this reconciliation may follow.
        if not await self._write_status(key, manifest, decision.status):
            return ReconcileResult()
        self._forget_gone(_make_uid(schedule), observed)
        self._metrics.show(key, decision.status)
        metadata = schedule.metadata
        identity = RunIdentity(metadata.name, metadata.namespace or "", metadata.uid or "", now)
        for event in decision.events:
            await self._record(identity, event)
        # The Jobs are deleted last: if the operator ends before this point, their results are read again.
        for done in (decision.delete_job, decision.delete_merge_job):
            if done is not None:
                await self._cluster.delete(JOB, done.name, key[0], done.uid)
        return ReconcileResult(decision.requeue_after)

    def _find_refusal(self, schedule: EvalSchedule) -> str:
        """Return what the chart's allow-lists refuse. The schedule's Jobs run before any of its runs is checked."""
        spec = schedule.spec
        urls = [spec.checkpoints.url, *([] if spec.merge is None else [spec.merge.cache])]
        return find_refusal(spec.template.to_wire(), schedule.metadata.namespace or "", self._settings.allowed, urls)

    async def _observe(self, schedule: EvalSchedule) -> ObservedSchedule:
        runs = tuple(self._runs.get(_make_uid(schedule), {}).values())
        start = None if schedule.status is None else schedule.status.start
        job = None if start is None or start.job is None else await self._fetch_listing_job(schedule, start.job)
        replicas = await self._observe_replicas(schedule)
        merge = None if schedule.status is None else find_waiting_merge(schedule.status)
        if merge is None:
            return ObservedSchedule(runs, job, replicas=replicas)
        metadata = schedule.metadata
        merge_name = merge_job_name(metadata.name, metadata.uid or "", merge.digest)
        return ObservedSchedule(runs, job, await self._job(schedule, merge_name), replicas)

    async def _observe_replicas(self, schedule: EvalSchedule) -> ReplicaSituation | None:
        """Return the situation of the replicas that a schedule keeps; None if there is nothing to decide.

        Raises:
            ClusterError: the API server does not reply as expected.
        """
        metadata, spec = schedule.metadata, schedule.spec
        namespace, uid = _make_uid(schedule)
        state = None if schedule.status is None else schedule.status.replicas
        objects = select_own_objects(self._children.find_for_run(namespace, uid))
        rollout = kept_rollout(schedule)
        if rollout is None and not objects and (state is None or state.cluster is None):
            return None
        if state is not None and state.cluster is not None and state.cluster_uid is not None:
            key = ObjectKey(RAY_CLUSTER, state.cluster)
            # A watch may be behind, and a RayCluster that was just created would count as lost.
            if key not in objects and RAY_CLUSTER not in self._children.missing_kinds:
                there = await self._cluster.read(RAY_CLUSTER, state.cluster, namespace)
                if there is not None and there["metadata"]["uid"] == state.cluster_uid:
                    objects[key] = parse_record({**there, "kind": RAY_CLUSTER})
        return ReplicaSituation(
            schedule=metadata.name,
            uid=uid,
            keep=None if spec.replicas is None or rollout is None else spec.replicas.keep,
            suspended=spec.suspend,
            runs=(),
            observed=Observed(objects, missing_kinds=frozenset(self._children.missing_kinds)),
            wanted=kept_cluster(schedule, self._settings, 0 if state is None else state.number),
            image=kept_image(schedule, self._settings),
            gpus=0 if rollout is None else rollout.worker_pods(rollout.initial_replicas) * rollout.gpus_per_node,
            now=self._now(),
        )

    async def _keep_replicas(
        self, schedule: EvalSchedule, decision: ScheduleDecision, step: ReplicaStep, now: datetime
    ) -> ScheduleDecision:
        """Take a step that an earlier status announced. Return the decision with the result.

        Raises:
            ClusterError: the API server does not reply as expected.
        """
        namespace = schedule.metadata.namespace or ""
        for seen in step.delete:
            await self._cluster.delete(seen.ref.kind, seen.ref.name, namespace, seen.uid)
        for seen in step.abandon:
            await self._cluster.delete(seen.ref.kind, seen.ref.name, namespace, seen.uid, abandon=True)
        fenced, resync = self._fenced.get(_make_uid(schedule)), timedelta(seconds=self._settings.resync_seconds)
        # The policy exists before the pods that it isolates. Later it is compared again now and then, in case somebody
        # changed it.
        if step.status.cluster is not None and (step.make or fenced is None or now - fenced >= resync):
            await self._fence(schedule, kept_policy(schedule, self._settings))
            self._fenced[_make_uid(schedule)] = now
        wanted = kept_cluster(schedule, self._settings, step.status.number)
        if not step.make or wanted is None:
            return decision
        try:
            made = await self._cluster.create_or_find(wanted)
        except RefusedError as error:
            return drop_refused_replicas(decision, str(error), schedule, now)
        replicas = step.status.model_copy(update=as_made(made))
        return replace(decision, status=decision.status.model_copy(update={"replicas": replicas}))

    async def _release_all(self, key: Key, uid: str) -> None:
        """Delete the RayClusters of a schedule that is being deleted, because its finalizers may take long."""
        for seen in select_own_objects(self._children.find_for_run(key[0], uid)).values():
            if seen.ref.kind == RAY_CLUSTER and not seen.deleting:
                await self._cluster.delete(seen.ref.kind, seen.ref.name, key[0], seen.uid)

    async def _fetch_listing_job(self, schedule: EvalSchedule, name: str) -> ListingJob | None:
        """Return a listing Job; None if it is gone. Delete a Job that waits with an image no longer in use."""
        job = await self._job(schedule, name)
        if job is None or job.state != "Running" or not job.message or job.image == self._settings.aggregator_image:
            return job
        await self._cluster.delete(JOB, job.name, schedule.metadata.namespace or "", job.uid)
        return None

    async def _job(self, schedule: EvalSchedule, name: str) -> ListingJob | None:
        namespace = schedule.metadata.namespace or ""
        job = await self._cluster.read(JOB, name, namespace)
        if job is None:
            return None
        return parse_listing_job(job, await self._cluster.pods_of_job(name, namespace))

    async def _make_jobs(
        self, schedule: EvalSchedule, observed: ObservedSchedule, decision: ScheduleDecision, now: datetime
    ) -> ScheduleDecision:
        """Create the Jobs, and return the decision without the refused Jobs. Raises ClusterError."""
        if decision.make_job is not None or decision.make_merge is not None:
            await self._fence(schedule, jobs_policy(schedule, self._settings))
        if decision.make_job is not None:
            url = names.local_path(schedule.spec.checkpoints.url)
            request = make_listing_request(schedule.spec, decision.status, url)
            try:
                await self._cluster.create(make_listing_job(schedule, decision.make_job, request, self._settings))
            except RefusedError as error:
                decision = drop_refused_listing(decision, str(error), schedule, now)
        if decision.make_merge is not None:
            job = make_merge_job(schedule, decision.make_merge, decision.status, observed.runs, self._settings)
            try:
                await self._cluster.create(job)
            except RefusedError as error:
                decision = drop_refused_merge(decision, str(error), schedule, now)
        return decision

    async def _fence(self, schedule: EvalSchedule, policy: Object) -> None:
        """Create or correct a NetworkPolicy of the schedule. A refusal is logged, as for a run's policy.

        Raises:
            ClusterError: the API server does not reply as expected.
        """
        name, namespace = policy["metadata"]["name"], policy["metadata"]["namespace"]
        try:
            there = await self._cluster.read(policy["kind"], name, namespace)
            if there is None:
                await self._cluster.create(policy)
                return
            refuse_foreign(policy, there)
            if there["spec"] != policy["spec"]:
                await self._cluster.apply(policy, there["metadata"]["uid"])
        except RefusedError as error:
            logger.warning("%s/%s: no NetworkPolicy %s: %s", namespace, schedule.metadata.name, name, error)

    async def _start(self, schedule: EvalSchedule, decision: ScheduleDecision) -> tuple[dict[str, str], dict[str, str]]:
        """Create the runs. Return the API server's message for each refused run, and the uids of the others, by digest.

        Raises:
            ClusterError: it is unknown whether a run was created; the reconciliation is repeated.
        """
        failures, uids = {}, {}
        parent = decision.parent
        for found in decision.start:
            manifest = make_eval_run(schedule, found, decision.start_time or self._now(), parent, decision.trigger)
            try:
                uids[found.digest] = await self._make_run(manifest)
            except RefusedError as error:
                failures[found.digest] = str(error)
            else:
                parent = manifest["metadata"]["name"]
        return failures, uids

    async def _start_merged(
        self, schedule: EvalSchedule, decision: ScheduleDecision
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Create the runs of merged checkpoints. Returns and raises as `_start` does."""
        failures, uids = {}, {}
        for one in decision.merged:
            try:
                uids[one.digest] = await self._make_run(make_merged_run(schedule, one))
            except RefusedError as error:
                failures[one.digest] = str(error)
        return failures, uids

    async def _make_run(self, manifest: Object) -> str:
        """Create a run. Return its uid. An equal run that exists was created by a reconciliation that was cut off.

        Raises:
            NameTakenError: somebody else has created a different run of that name, whatever its owner reference says.
            ClusterError: see `evalrun_cluster.errors`.
        """
        there = await self._cluster.create_or_find(manifest)
        if not is_same_run(manifest, there):
            name = manifest["metadata"]["name"]
            raise NameTakenError(
                f"EvalRun {name} is there already, and differs from what the schedule would make: somebody else has "
                "made it. Delete it, and the checkpoint is evaluated"
            )
        return str(there["metadata"]["uid"])

    def _forget_gone(self, uid: ScheduleUid, observed: ObservedSchedule) -> None:
        """Forget deleted runs that the status records completely."""
        runs = self._runs.get(uid, {})
        for run in observed.runs:
            if run.gone:
                runs.pop(run.uid, None)

    def _run_went(self, owner: ScheduleUid, runs: dict[str, ScheduledRun], uid: str) -> None:
        """Keep the result of a deleted run until its schedule has recorded it, or forget it with the schedule."""
        for key, manifest in self._known.items():
            if (key[0], manifest["metadata"]["uid"]) == owner:
                runs[uid] = replace(runs[uid], gone=True)
                self._wake(key, 0.0)
                return
        del runs[uid]
        if not runs:
            del self._runs[owner]

    def _on_forgotten(self, key: Key, uid: str, *, replaced: bool) -> None:
        self._runs.pop((key[0], uid), None)
        self._fenced.pop((key[0], uid), None)
        if not replaced:
            self._metrics.forget(key)
