"""One pass over a run: gather what is observed, decide, apply, write the status. Knows no framework.

What goes wrong ends as one of `errors`: the pass is repeated after a delay that grows with every failure in a row.
"""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType, EvalRun, EvalRunStatus, Reason, condition_of
from evalrun_cluster.client import Cluster
from evalrun_cluster.errors import ClusterError, ConflictError, NamespaceGoneError, NameTakenError, RefusedError
from evalrun_cluster.kinds import EVAL_RUN, SECRET
from evalrun_cluster.objects import Object, RunIdentity, StatusEvent
from evalrun_operator.aggregator_client import Aggregators
from evalrun_operator.lifecycle.decision import Decision
from evalrun_operator.lifecycle.frozen import UnreadableSettingsError
from evalrun_operator.lifecycle.reconcile import decide
from evalrun_operator.lifecycle.situation import holds_place, identity_of
from evalrun_operator.lifecycle.status_report import events_of, with_applied
from evalrun_operator.metrics import OperatorMetrics
from evalrun_operator.observation.children import Children, Key
from evalrun_operator.passes.gatherer import Gatherer
from evalrun_operator.passes.known_runs import KnownRuns
from evalrun_operator.passes.places import Places
from evalrun_operator.passes.work_queue import FIRST
from evalrun_operator.passes.writes import makes_something, write
from evalrun_operator.policies.refusals import WriteFailure, applied_text
from evalrun_operator.resources.run_tokens import RunTokens
from evalrun_operator.schedules.runs import schedule_of
from evalrun_operator.settings import OperatorSettings
from evalrun_runtime.backoff import backoff_seconds

logger = logging.getLogger(__name__)

MAX_RETRY_SECONDS = 10.0
MAX_REFUSED_SECONDS = 60.0
CONFLICT_SECONDS = 0.05
THERE_SECONDS = 30.0
"""Seconds for which a run is assumed to exist after the API server last showed it."""


class Controller:
    """Works on runs.

    Args:
        settings: the operator's settings.
        cluster: the API server, to write to.
        children: what is known of the runs' objects.
        aggregators: the runs' ledgers.
        metrics: what is shown of the runs.
        wake: has a run worked on after a delay in seconds, or `FIRST`.
        now: the time, with its zone.
        clock: seconds that only grow.
        new_token: makes a random token.
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
        new_token: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._gatherer = Gatherer(settings, cluster, children, aggregators, clock)
        self._metrics = metrics
        self._wake = wake
        self._now = now
        self._clock = clock
        self._new_token = new_token
        self._runs = KnownRuns()
        self._places = Places(settings.max_active_runs, self._runs.unended(), lambda key: wake(key, FIRST))
        self._shown: dict[str, float] = {}
        """By uid, when the API server last showed the run."""
        self._failures: dict[Key, int] = {}
        self._complaints: dict[Key, str] = {}
        self._write_failures: dict[str, Sequence[WriteFailure]] = {}
        """By uid, of the last pass that told of its writes in the run's condition Applied."""

    def saw_run(self, manifest: dict[str, Any], *, gone: bool = False) -> None:
        """Take over an EvalRun as it was seen; work on it where there is something new besides its status."""
        metadata = manifest["metadata"]
        key = (metadata["namespace"], metadata["name"])
        known = self._runs.get(key)
        if gone:
            if known is not None and known["metadata"]["uid"] == metadata["uid"]:
                self._forget(key, metadata["uid"])
            return
        if known is not None and known["metadata"]["uid"] == metadata["uid"] and not _newer(manifest, known):
            return  # our own write came back
        if known is not None and known["metadata"]["uid"] != metadata["uid"]:  # gone in a gap of the watch
            self._forget(key, known["metadata"]["uid"])
            known = None
        self._runs[key] = manifest
        self._shown[metadata["uid"]] = self._clock()
        if known is None:
            self._wake(key, _urgency(manifest))
        elif _asks_for_more(manifest, known):
            self._wake(key, FIRST)

    def wake_all(self) -> None:
        """Queue every run: nobody, or another operator, has worked on them until now."""
        self._gatherer.forget_tokens()
        for key, manifest in self._runs.items():
            self._wake(key, _urgency(manifest))

    async def work(self, key: Key) -> float | None:
        """Reconcile a run once. Returns the seconds after which to do it again."""
        manifest = self._runs.get(key)
        if manifest is None:
            return None
        started, outcome = self._clock(), "mistake"
        try:
            delay, failure = await self._outcome(key, manifest)
            outcome = "done" if failure is None else "refused" if isinstance(failure, RefusedError) else "retry"
        finally:
            self._metrics.passes.labels(outcome).observe(self._clock() - started)
        if failure is not None:
            return self._delay_after(key, failure, delay)
        self._failures.pop(key, None)
        self._complaints.pop(key, None)
        return delay

    async def _outcome(self, key: Key, manifest: dict[str, Any]) -> tuple[float | None, ClusterError | None]:
        try:
            return await self._pass(key, manifest)
        except ClusterError as error:
            if isinstance(error, RefusedError):
                await self._complain(key, manifest, error)
            return None, error

    def _delay_after(self, key: Key, failure: ClusterError, delay: float | None) -> float:
        """Return the wait after a pass that failed: it grows with each in a row, up to the run's own next look."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        first = CONFLICT_SECONDS if isinstance(failure, ConflictError) else 0.5
        limit = MAX_REFUSED_SECONDS if isinstance(failure, RefusedError) else MAX_RETRY_SECONDS
        wait = backoff_seconds(failures, first, limit)
        wait = wait if delay is None else min(wait, max(delay, first))
        logger.warning("%s/%s: %s; again in %.1f s", *key, failure, wait)
        return wait

    async def _pass(self, key: Key, manifest: dict[str, Any]) -> tuple[float | None, ClusterError | None]:
        """Reconcile once. Returns the time of the next pass, and the worst of the writes that failed."""
        try:
            run = EvalRun.from_wire(manifest)
        except ValidationError as error:  # the CRD is of another version than this operator
            first = error.errors()[0]
            raise _unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        identity = identity_of(run)
        observed = await self._gatherer.observe(run, identity)
        # Read in one go with the decision, so that two passes cannot both take the last place.
        observed = replace(
            observed, place=self._places.of(identity.uid), write_failures=self._write_failures.get(identity.uid)
        )
        now = self._now()
        try:
            decision = decide(run, observed, self._settings, now, self._new_token())
        except UnreadableSettingsError as error:
            raise _unreadable(str(error)) from error
        if decision.expired:
            await self._cluster.delete(EVAL_RUN.kind, identity.name, identity.namespace, identity.uid)
            return None, None
        self._places.take(identity.uid, decision.status)
        nothing_left = not observed.objects
        if (nothing_left or makes_something(decision, observed)) and not await self._is_there(identity):
            logger.info("%s/%s: it was deleted while nobody looked", *key)
            self._forget(key, identity.uid)
            return None, None
        if decision.end_early and observed.tokens is not None:
            await self._gatherer.end_early(identity, observed.tokens, decision.end_early)
        errors = await write(self._cluster, identity, decision, observed)
        made = next((item for item in decision.apply if _holds_tokens(item, identity)), None)
        if made is not None and not errors:
            self._gatherer.made_tokens(identity.uid, RunTokens(made["stringData"]))
        if observed.resync:
            self._gatherer.resynced(identity.uid)
        status = self._told(key, run, decision.status, errors, now)
        await self._write_status(key, manifest, identity, status, decision)
        if not holds_place(status):
            self._places.free(identity.uid)  # only now: those that are woken look at the status that was written
        if self._is_known(key, identity.uid):  # it may have gone meanwhile
            made_by = schedule_of(manifest)
            self._metrics.show(key, status, "" if made_by is None else made_by[0])
        if _complete(status):
            self._gatherer.close(identity)
            self._write_failures.pop(identity.uid, None)
        worst = next((error for _, error in errors if isinstance(error, RefusedError)), None)
        return decision.requeue_after, worst or next((error for _, error in errors), None)

    def _told(
        self, key: Key, run: EvalRun, status: EvalRunStatus, errors: Sequence[tuple[str, ClusterError]], now: datetime
    ) -> EvalRunStatus:
        """Return the status with what is to be said of the writes that failed."""
        failures = [
            WriteFailure(kind, _reason(error), str(error))
            for kind, error in errors
            if not isinstance(error, NamespaceGoneError)
        ]
        text = applied_text(failures, self._failures.get(key, 0) + 1)
        if text is None:
            return status
        self._write_failures[run.metadata.uid or ""] = failures
        return with_applied(run.status or status, status, text, run.metadata.generation, now)

    async def _is_there(self, identity: RunIdentity) -> bool:
        """Ask whether the run is still there.

        kopf tells of no run that was deleted in a gap of its watch (longer than the API server remembers), and what is
        made for one that is gone, the garbage collector takes away, which is a reason to create it again, without end.
        """
        if self._clock() - self._shown.get(identity.uid, float("-inf")) < THERE_SECONDS:
            return True
        found = await self._cluster.read_run(identity.namespace, identity.name)
        if found is None or found["metadata"]["uid"] != identity.uid:
            return False
        self._shown[identity.uid] = self._clock()
        return True

    async def _write_status(
        self, key: Key, manifest: Object, identity: RunIdentity, status: EvalRunStatus, decision: Decision
    ) -> None:
        """Write the status where it differs, then record the events that tell of it. Raises ClusterError."""
        if status.to_wire() == manifest.get("status"):
            return
        written = await self._cluster.write_status(manifest, status)
        if written is None:
            self._forget(key, identity.uid)
            return
        self._shown[identity.uid] = self._clock()
        if _newer(written, self._runs.get(key, written)):
            self._runs[key] = written
        before = EvalRunStatus.model_validate(manifest.get("status") or {})
        told = [event for event in events_of(before, status) if event not in decision.events]
        for event in (*decision.events, *told):
            await self._record(identity, event)

    async def _record(self, identity: RunIdentity, event: StatusEvent) -> None:
        """Record an event; one that cannot be recorded is only logged: the status says the same."""
        logger.info("%s/%s: %s: %s", identity.namespace, identity.name, event.reason, event.message)
        try:
            await self._cluster.record(identity, event, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        except ClusterError as error:
            logger.warning("%s/%s: %s", identity.namespace, identity.name, error)

    async def _complain(self, key: Key, manifest: dict[str, Any], error: RefusedError) -> None:
        """Record once, as an event, what ended a pass before its status was written: no condition tells of it."""
        message = str(error)
        if self._complaints.get(key) == message or isinstance(error, NamespaceGoneError):
            return
        self._complaints[key] = message
        metadata = manifest["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"])
        identity = RunIdentity(metadata["name"], metadata["namespace"], metadata["uid"], created)
        await self._record(identity, StatusEvent(True, "Refused", message))  # noqa: FBT003 - a warning

    def _forget(self, key: Key, uid: str) -> None:
        self._gatherer.forget(key, uid)
        self._shown.pop(uid, None)
        self._write_failures.pop(uid, None)
        if self._is_known(key, uid):  # otherwise a later run of that name has taken its place
            del self._runs[key]
            self._failures.pop(key, None)
            self._complaints.pop(key, None)
            self._metrics.forget(key)
        self._places.free(uid)

    def _is_known(self, key: Key, uid: str) -> bool:
        return key in self._runs and self._runs[key]["metadata"]["uid"] == uid


def _holds_tokens(item: Object, run: RunIdentity) -> bool:
    return (item["kind"], item["metadata"]["name"]) == (SECRET.kind, names.token_secret(run.name))


def _unreadable(what: str) -> RefusedError:
    return RefusedError(f"this operator cannot read {what}: is it older than the one that wrote it?")


def _reason(error: ClusterError) -> Reason:
    if isinstance(error, NameTakenError):
        return Reason.NAME_TAKEN
    return Reason.REFUSED if isinstance(error, RefusedError) else Reason.WRITE_FAILED


def _newer(manifest: dict[str, Any], known: dict[str, Any]) -> bool:
    """Compare two states of one object; resource versions are whole numbers that grow (Kubernetes 1.35, KEP-5504)."""
    ours, theirs = manifest["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]
    if ours.isdecimal() and theirs.isdecimal():
        return int(ours) > int(theirs)
    return bool(ours != theirs)


def _urgency(manifest: dict[str, Any]) -> float:
    """Return the delay of a run's first pass.

    What a user has just asked for is a short pass: it need not wait behind those that make a run's objects, nor, after
    a restart or a takeover, behind every run that was taken up long ago.
    """
    return 0.0 if manifest.get("status") else FIRST


def _asks_for_more(manifest: dict[str, Any], known: dict[str, Any]) -> bool:
    """Return whether an object differs in more than its status, which only we write."""
    fields = ("uid", "generation", "deletionTimestamp")
    return any(manifest["metadata"].get(field) != known["metadata"].get(field) for field in fields)


def _complete(status: EvalRunStatus | None) -> bool:
    condition = None if status is None else condition_of(status, ConditionType.COMPLETE)
    return condition is not None and condition.status == "True"
