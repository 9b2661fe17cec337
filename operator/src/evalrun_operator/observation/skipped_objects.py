"""Reports each unreadable object once, in the log and as an event on the object."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from evalrun_cluster.client import Cluster
from evalrun_cluster.errors import ClusterError
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE, Kind
from evalrun_cluster.objects import RunIdentity, StatusEvent

logger = logging.getLogger(__name__)

MAX_REMEMBERED = 1000
"""Maximum number of skipped objects that are remembered, so that each is reported once."""
MAX_WAITING = 100
"""Maximum number of events that wait to be written. Further objects are only logged: thousands of them need no more
events."""


class SkippedObjects:
    """Records the objects that the watches skip.

    Args:
        cluster: writes the events.
        now: the time, with its zone.
    """

    def __init__(self, cluster: Cluster, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._now = now
        self._told: set[str] = set()
        self._waiting: asyncio.Queue[tuple[Kind, RunIdentity, str]] = asyncio.Queue(MAX_WAITING)

    def skip(self, kind: Kind, metadata: Mapping[str, str], reason: str) -> None:
        """Log that an object is skipped, and have an event recorded on it if it is an EvalRun or EvalSchedule."""
        uid = metadata.get("uid", "")
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        if uid in self._told:
            return
        if len(self._told) >= MAX_REMEMBERED:
            self._told.clear()
        self._told.add(uid)
        logger.warning("skipped %s %s/%s: %s", kind.kind, namespace, name, reason[:500])
        if kind in {EVAL_RUN, EVAL_SCHEDULE} and not self._waiting.full():
            self._waiting.put_nowait((kind, RunIdentity(name, namespace, uid, self._now()), reason))

    async def run(self) -> None:
        """Write the events until cancelled."""
        while True:
            kind, identity, reason = await self._waiting.get()
            message = f"The operator skips this object, which it cannot read: {reason}"
            event = StatusEvent(warning=True, reason="Unreadable", message=message)
            time = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
            try:
                await self._cluster.record(identity, event, time, kind=kind.kind)
            except ClusterError as error:
                logger.warning("%s %s/%s: %s", kind.kind, identity.namespace, identity.name, error)
