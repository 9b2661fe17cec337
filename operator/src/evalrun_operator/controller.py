"""One pass over a run: gather what is observed, decide, apply, write the status. Knows no framework.

What goes wrong ends as one of `errors`: the pass is repeated after a delay that grows with every failure in a row.
"""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from evalrun_operator import names
from evalrun_operator.aggregator_client import Aggregators
from evalrun_operator.api.v1alpha1 import ConditionType, EvalRun, EvalRunStatus
from evalrun_operator.cluster import Cluster
from evalrun_operator.errors import AggregatorError, ConflictError, OperatorError, RefusedError
from evalrun_operator.kinds import SECRET
from evalrun_operator.ledger_status import LedgerStatus
from evalrun_operator.metrics import OperatorMetrics
from evalrun_operator.observed import Baseline, Observed, Ref, by_ref
from evalrun_operator.reconcile import Decision, decide
from evalrun_operator.resources import RunIdentity
from evalrun_operator.settings import OperatorSettings
from evalrun_operator.situation import identity_of, names_a_run
from evalrun_operator.status_report import StatusEvent, condition_of
from evalrun_operator.watching import Children, Key
from evalrun_operator.work_queue import FIRST

logger = logging.getLogger(__name__)

TOKEN_SECONDS = 60.0
"""How long a run's token is believed to be still in its Secret."""
LONGEST_RETRY_SECONDS = 10.0
LONGEST_REFUSED_SECONDS = 60.0
CONFLICT_SECONDS = 0.05
THERE_SECONDS = 30.0
"""How long a run is believed to be there since the API server last showed it."""
NAMESPACE_GONE = "because it is being terminated"


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
        self._children = children
        self._aggregators = aggregators
        self._metrics = metrics
        self._wake = wake
        self._now = now
        self._clock = clock
        self._new_token = new_token
        self._runs: dict[Key, dict[str, Any]] = {}
        self._tokens: dict[str, tuple[str, float]] = {}
        self._resynced: dict[str, float] = {}
        self._shown: dict[str, float] = {}
        """By uid, when the API server last showed the run."""
        self._failures: dict[Key, int] = {}
        self._complaints: dict[Key, str] = {}

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
        self._runs[key] = manifest
        self._shown[metadata["uid"]] = self._clock()
        if known is None or _asks_for_more(manifest, known):
            # What a user has just asked for is a short pass: it need not wait behind those that make a run's objects.
            self._wake(key, FIRST)

    async def work(self, key: Key) -> float | None:
        """Make one pass over a run; gives the seconds after which to make another."""
        manifest = self._runs.get(key)
        if manifest is None:
            return None
        started, outcome = self._clock(), "mistake"
        try:
            delay = await self._pass(key, manifest)
            outcome = "done"
            self._failures.pop(key, None)
            self._complaints.pop(key, None)
        except OperatorError as error:
            outcome = "refused" if isinstance(error, RefusedError) else "retry"
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            first = CONFLICT_SECONDS if isinstance(error, ConflictError) else 0.5
            longest = LONGEST_REFUSED_SECONDS if isinstance(error, RefusedError) else LONGEST_RETRY_SECONDS
            delay = min(longest, first * 2.0 ** min(failures - 1, 20))
            logger.warning("%s/%s: %s; again in %.1f s", *key, error, delay)
            if isinstance(error, RefusedError):
                await self._complain(key, manifest, str(error))
        finally:
            self._metrics.passes.labels(outcome).observe(self._clock() - started)
        return delay

    async def _pass(self, key: Key, manifest: dict[str, Any]) -> float | None:
        try:
            run = EvalRun.from_wire(manifest)
        except ValidationError as error:  # the CRD is of another version than this operator
            first = error.errors()[0]
            raise RefusedError(
                f"this operator cannot read {'.'.join(map(str, first['loc']))}: {first['msg']}"
            ) from error
        identity = identity_of(run)
        observed = await self._observe(run, identity)
        now = self._now()
        fresh_token = self._new_token()
        decision = decide(run, observed, self._settings, now, fresh_token)
        nothing_left = not observed.objects
        if (nothing_left or _makes_something(decision, observed)) and not await self._is_there(identity):
            logger.info("%s/%s: it was deleted while nobody looked", *key)
            self._forget(key, identity.uid)
            return None
        await self._act(key, manifest, identity, decision, observed, fresh_token)
        ended_for_good = decision.requeue_after is None and _complete(decision.status)
        if self._is_known(key, identity.uid):  # it may have gone meanwhile
            self._metrics.show(key, decision.status, results=not ended_for_good)
        if _complete(decision.status):
            await self._aggregators.forget(self._address(identity))
        return decision.requeue_after

    async def _observe(self, run: EvalRun, identity: RunIdentity) -> Observed:
        objects = by_ref(self._children.of(identity.uid).values())
        started = run.status is not None and run.status.start_time is not None
        token = await self._token(identity) if started else None
        resync = self._clock() - self._resynced.setdefault(identity.uid, self._clock()) >= self._settings.resync_seconds
        baseline = None if started else await self._baseline(run)
        observed = Observed(objects, token, None, frozenset(self._children.missing_kinds), baseline, resync)
        aggregator = observed.workload("StatefulSet", names.component(identity.name, names.AGGREGATOR))
        if token is None or aggregator is None or aggregator.ready == 0 or _complete(run.status):
            return observed
        ledger = await self._ask(identity, token)
        return replace(observed, ledger=ledger)

    async def _is_there(self, identity: RunIdentity) -> bool:
        """Ask whether the run is still there.

        kopf tells of no run that was deleted in a gap of its watch (longer than the API server remembers), and what is
        made for one that is gone, the garbage collector takes away, which is a reason to make it again: for ever.
        """
        if self._clock() - self._shown.get(identity.uid, float("-inf")) < THERE_SECONDS:
            return True
        found = await self._cluster.read_run(identity.namespace, identity.name)
        if found is None or found["metadata"]["uid"] != identity.uid:
            return False
        self._shown[identity.uid] = self._clock()
        return True

    async def _baseline(self, run: EvalRun) -> Baseline | None:
        """Look up the EvalRun that the gate names; the API server is asked, since not all may have been seen yet."""
        gate = run.spec.gate
        if gate is None or not names_a_run(gate):
            return None
        found = await self._cluster.read_run(run.metadata.namespace or "", gate.baseline)
        status = (found or {}).get("status") or {}
        return Baseline("" if found is None else status.get("phase", "Pending"), status.get("outputURL", ""))

    async def _ask(self, identity: RunIdentity, token: str) -> LedgerStatus | None:
        try:
            return await self._aggregators.status(self._address(identity), token)
        except AggregatorError as error:
            logger.info("%s/%s: its aggregator does not answer: %s", identity.namespace, identity.name, error)
            return None

    async def _token(self, identity: RunIdentity) -> str | None:
        known = self._tokens.get(identity.uid)
        if known is not None and self._clock() - known[1] < TOKEN_SECONDS:
            return known[0]
        token = await self._cluster.read_token(identity)
        if token is None:
            self._tokens.pop(identity.uid, None)
        else:
            self._tokens[identity.uid] = (token, self._clock())
        return token

    async def _act(
        self,
        key: Key,
        manifest: dict[str, Any],
        identity: RunIdentity,
        decision: Decision,
        observed: Observed,
        token: str,
    ) -> None:
        """Apply a decision: deletions first, the status last, then the events that tell of it.

        A write that fails does not keep the others from being made; but then nothing is said of them yet.
        """
        writes = [partial(self._cluster.delete, seen, identity.namespace) for seen in decision.delete]
        writes += [partial(self._cluster.apply, item) for item in decision.apply]
        failures = [error for write in writes if (error := await _failure_of(write())) is not None]
        if failures:
            raise next((error for error in failures if isinstance(error, RefusedError)), failures[0])
        if observed.token is None and any(item["kind"] == SECRET.kind for item in decision.apply):
            self._tokens[identity.uid] = (token, self._clock())  # made just now: no need to read it back
        if observed.resync:
            self._resynced[identity.uid] = self._clock()
        if decision.status.to_wire() == manifest.get("status"):
            return
        written = await self._cluster.write_status(manifest, decision.status)
        if written is None:
            self._forget(key, identity.uid)
            return
        self._shown[identity.uid] = self._clock()
        if _newer(written, self._runs.get(key, written)):
            self._runs[key] = written
        for event in decision.events:
            await self._record(identity, event)

    async def _record(self, identity: RunIdentity, event: StatusEvent) -> None:
        """Record an event; one that cannot be recorded is only logged: the status says the same."""
        logger.info("%s/%s: %s: %s", identity.namespace, identity.name, event.reason, event.message)
        try:
            await self._cluster.record(identity, event, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        except OperatorError as error:
            logger.warning("%s/%s: %s", identity.namespace, identity.name, error)

    async def _complain(self, key: Key, manifest: dict[str, Any], message: str) -> None:
        """Tell the user once what the API server refuses."""
        if self._complaints.get(key) == message or NAMESPACE_GONE in message:
            return
        self._complaints[key] = message
        metadata = manifest["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"])
        identity = RunIdentity(metadata["name"], metadata["namespace"], metadata["uid"], created)
        await self._record(identity, StatusEvent(True, "Refused", message))  # noqa: FBT003 - a warning

    def _address(self, identity: RunIdentity) -> str:
        service = names.component(identity.name, names.AGGREGATOR)
        return self._settings.aggregator_address.format(
            service=service, namespace=identity.namespace, run=identity.name
        )

    def _forget(self, key: Key, uid: str) -> None:
        self._tokens.pop(uid, None)
        self._resynced.pop(uid, None)
        self._shown.pop(uid, None)
        if not self._is_known(key, uid):
            return  # a later run of that name has taken its place
        for known in (self._runs, self._failures, self._complaints):
            known.pop(key, None)
        self._metrics.forget(key)

    def _is_known(self, key: Key, uid: str) -> bool:
        return key in self._runs and self._runs[key]["metadata"]["uid"] == uid


async def _failure_of(write: Awaitable[None]) -> OperatorError | None:
    try:
        await write
    except OperatorError as error:
        return error
    return None


def _makes_something(decision: Decision, observed: Observed) -> bool:
    """Say whether a decision makes what is not there, or renews what is."""
    new = {Ref(item["kind"], item["metadata"]["name"]) for item in decision.apply} - observed.objects.keys()
    return bool(new) or (observed.resync and bool(decision.apply))


def _newer(manifest: dict[str, Any], known: dict[str, Any]) -> bool:
    """Compare two states of one object; resource versions are whole numbers that grow (Kubernetes 1.35, KEP-5504)."""
    ours, theirs = manifest["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]
    if ours.isdecimal() and theirs.isdecimal():
        return int(ours) > int(theirs)
    return bool(ours != theirs)


def _asks_for_more(manifest: dict[str, Any], known: dict[str, Any]) -> bool:
    """Say whether an object differs in more than its status, which only we write."""
    fields = ("uid", "generation", "deletionTimestamp")
    return any(manifest["metadata"].get(field) != known["metadata"].get(field) for field in fields)


def _complete(status: EvalRunStatus | None) -> bool:
    condition = None if status is None else condition_of(status, ConditionType.COMPLETE)
    return condition is not None and condition.status == "True"
