"""Reconciles a run: observes it, decides, applies the decision, writes the status. Depends on no framework."""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from evalrun_api import names
from evalrun_api.v1alpha1 import KIND, ConditionType, EvalRun, EvalRunStatus, Reason, find_condition
from evalrun_cluster.client import Cluster
from evalrun_cluster.errors import ClusterError, NamespaceGoneError, NameTakenError, RefusedError
from evalrun_cluster.kinds import EVAL_RUN, SECRET
from evalrun_cluster.objects import Object, RunIdentity
from evalrun_operator.aggregator_client import Aggregators
from evalrun_operator.lifecycle.decision import Decision
from evalrun_operator.lifecycle.frozen import UnreadableSettingsError
from evalrun_operator.lifecycle.reconcile import decide
from evalrun_operator.lifecycle.situation import holds_queue_position, make_identity
from evalrun_operator.lifecycle.status_report import derive_events, replace_applied_condition
from evalrun_operator.metrics import OperatorMetrics, make_subject
from evalrun_operator.observation.children import Children, Key
from evalrun_operator.observation.records import KeptReplicas
from evalrun_operator.policies.refusals import WriteFailure, report_writes
from evalrun_operator.reconcilers.known_runs import KnownRuns
from evalrun_operator.reconcilers.observer import Observer
from evalrun_operator.reconcilers.queue_positions import QueuePositions
from evalrun_operator.reconcilers.reconciler import Reconciler, ReconcileResult, read_object, unreadable
from evalrun_operator.reconcilers.work_queue import FIRST
from evalrun_operator.reconcilers.writes import makes_something, write
from evalrun_operator.resources.run_tokens import RunTokens
from evalrun_operator.schedules.runs import find_schedule
from evalrun_operator.settings import OperatorSettings

logger = logging.getLogger(__name__)

THERE_SECONDS = 30.0
"""Seconds for which a run is assumed to exist after the API server last showed it."""


class Controller(Reconciler):
    """Works on runs.

    Args:
        settings: the operator's settings.
        cluster: the API server, for writes.
        children: the known objects of the runs.
        aggregators: the runs' ledgers.
        metrics: exports the runs.
        wake: requests a reconciliation of a run after a delay in seconds, or `FIRST`.
        now: the time, with its zone.
        clock: seconds, monotonic.
        turns: tells a run whether it has its turn on the replicas that its schedule keeps.
        new_token: returns a random token.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        cluster: Cluster,
        children: Children,
        aggregators: Aggregators,
        metrics: OperatorMetrics,
        wake: Callable[[Key, float], None],
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        turns: Callable[[EvalRun, Object], KeptReplicas | None] = lambda _run, _manifest: None,
        new_token: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        runs = KnownRuns()
        super().__init__(KIND, cluster, runs, wake, now)
        self._settings = settings
        self._observer = Observer(settings, cluster, children, aggregators, clock)
        self._metrics = metrics
        self._clock = clock
        self._turns = turns
        self._new_token = new_token
        self._positions = QueuePositions(settings.max_active_runs, runs.contenders(), lambda key: wake(key, FIRST))
        self._shown: dict[str, float] = {}
        """When the API server last showed each run, by uid."""
        self._write_failures: dict[str, Sequence[WriteFailure]] = {}
        """Failed writes, by uid, of the last reconciliation that reported its writes in the run's condition Applied."""

    def wake_all(self) -> None:
        """Queue every run, because until now another operator, or none, has worked on the runs."""
        self._observer.forget_tokens()
        super().wake_all()

    async def _outcome(self, key: Key, manifest: Object) -> ReconcileResult:
        started, outcome = self._clock(), "mistake"
        try:
            result = await super()._outcome(key, manifest)
            failure = result.failure
            outcome = "done" if failure is None else "refused" if isinstance(failure, RefusedError) else "retry"
        finally:
            self._metrics.reconciliations.labels(outcome).observe(self._clock() - started)
        return result

    async def _pass(self, key: Key, manifest: Object) -> ReconcileResult:
        run = read_object(EvalRun, manifest)
        identity = make_identity(run)
        observed = await self._observer.observe(run, identity)
        # The positions are read together with the decision, so that two reconciliations cannot both take the last
        # position.
        observed = replace(
            observed,
            place=self._positions.find_for_run(identity.uid),
            write_failures=self._write_failures.get(identity.uid),
        )
        # A run that has a RayCluster began with replicas of its own, and continues with them.
        if not observed.find_by_kind("RayCluster"):
            observed = replace(observed, kept=self._turns(run, manifest))
        now = self._now()
        try:
            decision = decide(run, observed, self._settings, now, self._new_token())
        except UnreadableSettingsError as error:
            raise unreadable(str(error)) from error
        if decision.expired:
            await self._cluster.delete(EVAL_RUN.kind, identity.name, identity.namespace, identity.uid)
            return ReconcileResult()
        self._positions.take(identity.uid, decision.status)
        nothing_left = not observed.objects
        if (nothing_left or makes_something(decision, observed)) and not await self._is_there(identity):
            logger.info("%s/%s: it was deleted while nobody looked", *key)
            self._forget(key, identity.uid)
            return ReconcileResult()
        if decision.end_early and observed.tokens is not None:
            await self._observer.end_early(identity, observed.tokens, decision.end_early)
        errors = await write(self._cluster, identity, decision, observed)
        made = next((item for item in decision.apply if _holds_tokens(item, identity)), None)
        if made is not None and not errors:
            self._observer.record_tokens(identity.uid, RunTokens(made["stringData"]))
        if observed.resync:
            self._observer.record_resync(identity.uid)
        status = self._report_failures(key, run, decision.status, errors, now)
        if status.to_wire() != manifest.get("status") and await self._write_status(key, manifest, status):
            await self._record_news(identity, manifest, status, decision)
        if not holds_queue_position(status):
            # The position is freed only now, because the woken runs read the status that was written.
            self._positions.free(identity.uid)
        # The run may have gone meanwhile.
        if self._is_known(key, identity.uid):
            made_by = find_schedule(manifest)
            self._metrics.show(key, status, "" if made_by is None else made_by[0], make_subject(run.spec))
        if _complete(status):
            self._observer.close(identity)
            self._write_failures.pop(identity.uid, None)
        worst = next((error for _, error in errors if isinstance(error, RefusedError)), None)
        return ReconcileResult(decision.requeue_after, worst or next((error for _, error in errors), None))

    def _report_failures(
        self, key: Key, run: EvalRun, status: EvalRunStatus, errors: Sequence[tuple[str, ClusterError]], now: datetime
    ) -> EvalRunStatus:
        """Return the status with a report of the writes that failed."""
        failures = [
            WriteFailure(kind, _reason(error), str(error))
            for kind, error in errors
            if not isinstance(error, NamespaceGoneError)
        ]
        text = report_writes(failures, self._failures.get(key, 0) + 1)
        if text is None:
            return status
        self._write_failures[run.metadata.uid or ""] = failures
        return replace_applied_condition(run.status or status, status, text, run.metadata.generation, now)

    async def _is_there(self, identity: RunIdentity) -> bool:
        """Return whether the run still exists.

        A run that was deleted in a gap of its watch is never reported. The garbage collector deletes objects created
        for it, which would cause them to be created again, without end.
        """
        if self._clock() - self._shown.get(identity.uid, float("-inf")) < THERE_SECONDS:
            return True
        found = await self._cluster.read_run(identity.namespace, identity.name)
        if found is None or found["metadata"]["uid"] != identity.uid:
            return False
        self._on_shown(identity.uid)
        return True

    async def _record_news(
        self, identity: RunIdentity, manifest: Object, status: EvalRunStatus, decision: Decision
    ) -> None:
        before = EvalRunStatus.model_validate(manifest.get("status") or {})
        told = [event for event in derive_events(before, status) if event not in decision.events]
        for event in (*decision.events, *told):
            await self._record(identity, event)

    def _on_shown(self, uid: str) -> None:
        self._shown[uid] = self._clock()

    def _on_forgotten(self, key: Key, uid: str, *, replaced: bool) -> None:
        self._observer.forget(key, uid)
        self._shown.pop(uid, None)
        self._write_failures.pop(uid, None)
        if not replaced:
            self._metrics.forget(key)
        self._positions.free(uid)


def _holds_tokens(item: Object, run: RunIdentity) -> bool:
    return (item["kind"], item["metadata"]["name"]) == (SECRET.kind, names.token_secret(run.name))


def _reason(error: ClusterError) -> Reason:
    if isinstance(error, NameTakenError):
        return Reason.NAME_TAKEN
    return Reason.REFUSED if isinstance(error, RefusedError) else Reason.WRITE_FAILED


def _complete(status: EvalRunStatus | None) -> bool:
    condition = None if status is None else find_condition(status, ConditionType.COMPLETE)
    return condition is not None and condition.status == "True"
