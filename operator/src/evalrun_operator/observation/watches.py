"""Lists and watches EvalRuns and the objects that belong to them, and reports every change.

Only children with a run's label are requested, so a large cluster costs no more than its runs do. Every list replaces
the known objects of the kind: the next list finds what a watch has missed, at the latest after `SESSION_SECONDS`. Each
namespace is followed by itself, so a namespace that refuses stops no other. An object that cannot be decoded or stored
is skipped, and stops nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import httpx2
from lightkube import ApiError

from evalrun_api import names
from evalrun_cluster.client import ExactClient, is_missing
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE, Kind
from evalrun_cluster.object_decoding import UndecodableObject
from evalrun_operator.observation.free_memory import return_free_memory

logger = logging.getLogger(__name__)

SESSION_SECONDS = 300
"""Maximum seconds of a watch before the kind is listed again."""
STALE_SECONDS = 3 * SESSION_SECONDS
"""Seconds of silence after which a watch no longer follows its kind, and the process must be restarted."""
MISSING_SECONDS = 15.0
ERROR_SECONDS = (0.2, 1.0, 3.0, 10.0)
CHUNK = 20
"""Objects per page of a list: the text of a page is held as a whole, and an object may have 1.5 MB."""
BAD_REQUEST, FORBIDDEN, NOT_FOUND = 400, 403, 404

Skip = Callable[[Kind, Mapping[str, str], str], None]
"""Called with the kind and metadata of an object that is skipped, and the reason."""


class Sink(Protocol):
    """Interface to the receiver of what a watch observed."""

    def put(self, manifest: dict[str, Any]) -> Hashable | None:
        """Store the state of an object and return the key that `drop` needs, or None if the object is skipped."""
        ...

    def drop(self, known: Any) -> None:  # noqa: ANN401 - what `put` gave
        """Forget an object that is gone."""
        ...


class Watch:
    """Watches one kind in one namespace, or in all namespaces.

    Args:
        client: lightkube's client.
        kind: the kind to follow.
        namespace: the namespace; None: all namespaces.
        sink: receives the objects.
        missing_kinds: gets the kind while the cluster does not serve it.
        missing_seconds: pause between two checks whether the kind, or the namespace, exists by now.
        turn: held during a list; shared by the watches of an operator.
        skip: called for each object that cannot be decoded or stored.
        field_selector: narrows the request, if the API server knows its fields.
    """

    def __init__(
        self,
        client: ExactClient,
        kind: Kind,
        namespace: str | None,
        sink: Sink,
        missing_kinds: set[str],
        missing_seconds: float = MISSING_SECONDS,
        turn: asyncio.Lock | None = None,
        skip: Skip = lambda *_: None,
        field_selector: str = "",
    ) -> None:
        self._client = client
        self._skip = skip
        self._field_selector = field_selector
        self._selectors: dict[str, str] = {}
        """Selectors of the last list, and of the watch that follows it."""
        self._missing_seconds = missing_seconds
        self._turn = turn or asyncio.Lock()
        self._sink = sink
        self._missing_kinds = missing_kinds
        self._known: dict[str, tuple[str, Hashable]] = {}
        """Resource version and sink's key of each object, by uid."""
        self._heard_at = float("-inf")
        self.kind = kind
        self.namespace = namespace
        self.answered = asyncio.Event()
        """Set once the kind has been listed, or is known to be unavailable for now."""
        self.refused = ""
        """Reason why the namespace cannot be followed for now; empty while it can be."""
        self.trouble = "no answer yet"
        """The last error; empty without an error."""

    def measure_silence(self, now: float) -> float:
        """Return the seconds since the last reply of the API server, refusals included."""
        return now - self._heard_at

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        errors, loop = 0, asyncio.get_running_loop()
        while True:
            listed_at = float("inf")
            try:
                # Simultaneous lists of all kinds would hold a page of each in memory.
                async with self._turn:
                    version = await self._list()
                self._hear()
                listed_at = loop.time()
                # A dead connection reports nothing.
                async with asyncio.timeout(SESSION_SECONDS + 30):
                    await self._follow(version)
                ended = True
            except TimeoutError:
                errors = 0
                continue
            except httpx2.HTTPError as error:
                if self._is_lasting(error):
                    await asyncio.sleep(self._missing_seconds)
                    continue
                self.trouble = " ".join(str(error).split())[:500] or type(error).__name__
                logger.warning("watching %s: %s; listing it again", self.kind.plural, self.trouble)
                ended = False
            # The pause is skipped only after a watch that lasted. If each watch ended at once, list would follow list
            # without a pause.
            if loop.time() - listed_at > ERROR_SECONDS[-1]:
                errors = 0
                if ended:
                    continue
            await asyncio.sleep(ERROR_SECONDS[min(errors, len(ERROR_SECONDS) - 1)])
            errors += 1

    def _is_lasting(self, error: httpx2.HTTPError) -> bool:
        """Record an error that only the user can end, and return whether it is one: the kind is not served, or the
        namespace refuses."""
        if is_missing(error) and self.kind.optional:
            self._missing_kinds.add(self.kind.kind)
            self._hear()
            return True
        if self.namespace is None or not is_refused(error):
            return False
        if not self.refused:
            text = " ".join(str(error).split())[:500]
            logger.warning("namespace %s: %s cannot be followed: %s", self.namespace, self.kind.plural, text)
            self._hear(refused=text)
        # The namespace refused for a second time, so its objects are no longer ours to manage.
        else:
            self._forget(set())
            self._hear(refused=self.refused)
        return True

    def _hear(self, refused: str = "") -> None:
        if self.refused and not refused:
            logger.info("namespace %s: %s can be followed again", self.namespace, self.kind.plural)
        self._heard_at = asyncio.get_running_loop().time()
        self.refused, self.trouble = refused, ""
        self.answered.set()

    async def _list(self) -> str:
        """Store every object, and return the version to watch from. Raises httpx2.HTTPError."""
        labels = {} if self.kind in {EVAL_RUN, EVAL_SCHEDULE} else {"labelSelector": names.RUN_UID_LABEL}
        self._selectors = {**labels, "fieldSelector": self._field_selector} if self._field_selector else labels
        try:
            return await self._list_selected()
        except httpx2.HTTPError as error:
            if not self._field_selector or status_code(error) != BAD_REQUEST:
                raise
            # The CRD is older than the operator, or Kubernetes is older than 1.31, the first version that selects by
            # fields of CRDs.
            self._selectors = labels
            return await self._list_selected()

    async def _list_selected(self) -> str:
        listed: set[str] = set()
        version = ""
        async for page in self._client.list_pages(self.kind, self.namespace, self._selectors, CHUNK):
            listed.update(self._take(item) for item in page.items)
            version = page.version
        self._forget(listed)
        self._missing_kinds.discard(self.kind.kind)
        return_free_memory()
        return version

    async def _follow(self, version: str) -> None:
        """Watch from a version on until the session ends.

        Raises:
            httpx2.HTTPError: the watch broke, also on status 410.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + SESSION_SECONDS
        events = self._client.watch_objects(self.kind, self.namespace, self._selectors, version, SESSION_SECONDS)
        async for change, item in events:
            self._heard_at = loop.time()
            if change in {"ADDED", "MODIFIED"}:
                self._take(item)
            elif change == "DELETED":
                metadata = item.metadata if isinstance(item, UndecodableObject) else item["metadata"]
                known = self._known.pop(metadata.get("uid", ""), None)
                if known is not None:
                    self._sink.drop(known[1])
            if loop.time() >= end:
                return

    def _take(self, item: dict[str, Any] | UndecodableObject) -> str:
        """Store an object, or skip it and drop its earlier state. Return its uid."""
        if isinstance(item, UndecodableObject):
            metadata, reason = item.metadata, item.reason
        else:
            metadata = item["metadata"]
            try:
                self._put(item)
            except Exception as error:  # noqa: BLE001
                # Whatever an object contains, the watch of all others continues. An exception here once ended the
                # operator, and every restart met the object again.
                reason = f"{type(error).__name__}: {error}"
            else:
                return str(metadata["uid"])
        uid = metadata.get("uid", "")
        known = self._known.pop(uid, None)
        if known is not None:
            self._sink.drop(known[1])
        self._skip(self.kind, metadata, reason)
        return uid

    def _put(self, item: dict[str, Any]) -> None:
        """Store an object, and drop its earlier state if it changed its run or became unreadable.

        An unchanged object is left as it is. Each list, every few minutes, would otherwise replace all kept objects by
        copies made among the list's garbage, and hold that memory.
        """
        uid, version = item["metadata"]["uid"], item["metadata"]["resourceVersion"]
        before = self._known.get(uid)
        if before is not None and before[0] == version:
            return
        # Items of a list have no kind of their own.
        known = self._sink.put({**item, "kind": self.kind.kind, "apiVersion": self.kind.api_version})
        self._known.pop(uid, None)
        if before is not None and before[1] != known:
            self._sink.drop(before[1])
        if known is not None:
            self._known[uid] = (version, known)

    def _forget(self, listed: set[str]) -> None:
        for uid in self._known.keys() - listed:
            self._sink.drop(self._known.pop(uid)[1])


class Watches:
    """Watches all kinds, and reports a kind that can no longer be watched.

    Args:
        client: lightkube's client.
        sinks: the kinds to follow, each with the receiver of its objects.
        namespaces: the namespaces; none: all namespaces.
        missing_kinds: gets the kinds that the cluster does not serve.
        missing_seconds: pause between two checks whether a kind, or a namespace, exists by now.
        skip: called for each object that cannot be decoded or stored.
        field_selectors: selectors that narrow the request, by kind.
    """

    def __init__(
        self,
        client: ExactClient,
        sinks: Sequence[tuple[Kind, Sink]],
        namespaces: Sequence[str],
        missing_kinds: set[str],
        missing_seconds: float = MISSING_SECONDS,
        skip: Skip = lambda *_: None,
        field_selectors: Mapping[Kind, str] | None = None,
    ) -> None:
        turn, selectors = asyncio.Lock(), field_selectors or {}
        self._watches = [
            Watch(client, kind, namespace, sink, missing_kinds, missing_seconds, turn, skip, selectors.get(kind, ""))
            for kind, sink in sinks
            for namespace in (namespaces or (None,))
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self.broken = asyncio.Event()
        """Set when a watch has ended, which must not happen: the process cannot continue."""

    async def start(self, patience: float) -> None:
        """Start, and wait until every kind has been listed, or cannot be for a reason that only the user can change.

        Raises:
            TimeoutError: a reply of the API server is missing after `patience` seconds; the message names the kind.
        """
        if not self._tasks:
            self._tasks = [asyncio.create_task(watch.run(), name=watch.kind.plural) for watch in self._watches]
            for task in self._tasks:
                task.add_done_callback(self._on_end)
        try:
            async with asyncio.timeout(patience):
                for watch in self._watches:
                    await watch.answered.wait()
        except TimeoutError as error:
            silent = {f"{watch.kind.plural}: {watch.trouble}" for watch in self._watches if not watch.answered.is_set()}
            raise TimeoutError("; ".join(sorted(silent)[:3])) from error

    def stale(self) -> list[str]:
        """Return the kinds without any reply for too long."""
        now = asyncio.get_running_loop().time()
        return sorted({watch.kind.plural for watch in self._watches if watch.measure_silence(now) > STALE_SECONDS})

    def lost_namespaces(self) -> dict[str, str]:
        """Return the namespaces that cannot be followed for now, each with the API server's reason."""
        return {watch.namespace: watch.refused for watch in self._watches if watch.namespace and watch.refused}

    async def stop(self) -> None:
        """End every watch."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        logger.critical("the watch of %s ended, which it never should", task.get_name(), exc_info=task.exception())
        self.broken.set()


def is_refused(error: httpx2.HTTPError) -> bool:
    """Return whether the API server refused, or replied that there is no such thing."""
    return status_code(error) in {FORBIDDEN, NOT_FOUND}


def status_code(error: httpx2.HTTPError) -> int | None:
    """Return the API server's status code; None if it has not replied."""
    # An error in an event of a watch has no HTTP response.
    if isinstance(error, ApiError):
        return error.status.code
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None
