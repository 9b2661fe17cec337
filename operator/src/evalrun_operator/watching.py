"""Follows the objects that belong to runs: lists a kind, watches it, lists it again, and tells what it saw.

Only what carries a run's label is asked for, so a large cluster costs no more than its runs do. Every list replaces
what was known of the kind: what a watch has missed is mended by the next one, at the latest after `SESSION_SECONDS`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
from lightkube import ALL_NS, AsyncClient, operators

from evalrun_operator import names
from evalrun_operator.cluster import is_missing, resource_of
from evalrun_operator.kinds import Kind
from evalrun_operator.observed import Ref, Seen, digest

logger = logging.getLogger(__name__)

SESSION_SECONDS = 300
"""Longest that one watch lasts before the kind is listed anew."""
MISSING_SECONDS = 15.0
"""How often it is asked whether a kind is served by now."""
ERROR_SECONDS = (0.2, 1.0, 3.0, 10.0)
CHUNK = 500

Key = tuple[str, str]
"""Namespace and name of an EvalRun."""


class Children:
    """What is known of all runs' objects, by run.

    Args:
        wake: called with the key of a run whose objects have changed.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._by_run: dict[str, dict[Ref, Seen]] = {}
        self.missing_kinds: set[str] = set()
        """Kinds that the cluster does not serve."""

    def of(self, uid: str) -> dict[Ref, Seen]:
        """Give a copy of what is known of a run's objects."""
        return dict(self._by_run.get(uid, {}))

    def put(self, manifest: dict[str, Any]) -> tuple[str, Ref, Key]:
        """Take over the state of an object; gives the run's uid, the object, and the run's key."""
        metadata = manifest["metadata"]
        labels = metadata.get("labels") or {}
        uid, key = labels.get(names.RUN_UID_LABEL, ""), (metadata["namespace"], labels.get(names.RUN_LABEL, ""))
        seen = digest(manifest)
        known = self._by_run.setdefault(uid, {})
        if known.get(seen.ref) != seen:
            known[seen.ref] = seen
            self._wake(key)
        return uid, seen.ref, key

    def drop(self, uid: str, ref: Ref, key: Key) -> None:
        """Forget an object that is gone."""
        known = self._by_run.get(uid, {})
        if known.pop(ref, None) is not None:
            self._wake(key)
        if not known:
            self._by_run.pop(uid, None)


class Watch:
    """Follows one kind in one namespace, or in all.

    Args:
        client: lightkube's.
        kind: what to follow.
        namespace: where; None: everywhere.
        children: where it is told.
    """

    def __init__(self, client: AsyncClient, kind: Kind, namespace: str | None, children: Children) -> None:
        self._client = client
        self._kind = kind
        self._namespace = ALL_NS if namespace is None else namespace
        self._children = children
        self._known: dict[tuple[str, Ref], Key] = {}
        self.synced = asyncio.Event()
        """Set once the kind has been listed."""

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        errors = 0
        while True:
            try:
                version = await self._list()
                self.synced.set()
                errors = 0
                async with asyncio.timeout(SESSION_SECONDS + 30):  # a dead connection says nothing
                    await self._follow(version)
            except TimeoutError:
                continue
            except httpx2.HTTPError as error:
                if is_missing(error) and self._kind.optional:
                    self._children.missing_kinds.add(self._kind.kind)
                    self.synced.set()
                    await asyncio.sleep(MISSING_SECONDS)
                    continue
                logger.warning("watching %s: %s; listing it again", self._kind.plural, " ".join(str(error).split()))
                await asyncio.sleep(ERROR_SECONDS[min(errors, len(ERROR_SECONDS) - 1)])
                errors += 1

    async def _list(self) -> str:
        found = self._client.list(
            resource_of(self._kind), namespace=self._namespace, chunk_size=CHUNK,
            labels={names.RUN_UID_LABEL: operators.exists()},
        )  # fmt: skip
        listed = {}
        async for item in found:
            uid, ref, key = self._put(item)
            listed[uid, ref] = key
        for uid, ref in self._known.keys() - listed.keys():
            self._children.drop(uid, ref, self._known[uid, ref])
        self._known = listed
        self._children.missing_kinds.discard(self._kind.kind)
        return found.resourceVersion

    async def _follow(self, version: str) -> None:
        """Watch from a version on, for one session. Raises httpx2.HTTPError where the watch breaks, 410 included."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SESSION_SECONDS
        events = self._client.watch(
            resource_of(self._kind), namespace=self._namespace, labels={names.RUN_UID_LABEL: operators.exists()},
            server_timeout=SESSION_SECONDS, resource_version=version,
        )  # fmt: skip
        async for change, item in events:
            if change in {"ADDED", "MODIFIED"}:
                uid, ref, key = self._put(item)
                self._known[uid, ref] = key
            elif change == "DELETED":
                metadata = item["metadata"]
                labels = metadata.get("labels") or {}
                uid, ref = labels.get(names.RUN_UID_LABEL, ""), Ref(self._kind.kind, metadata["name"])
                key = (metadata["namespace"], labels.get(names.RUN_LABEL, ""))
                self._known.pop((uid, ref), None)
                self._children.drop(uid, ref, key)
            if loop.time() >= end:
                return

    def _put(self, item: dict[str, Any]) -> tuple[str, Ref, Key]:
        # Items of a list carry no kind of their own.
        return self._children.put({**item, "kind": self._kind.kind})


class Watches:
    """Follows all kinds.

    Args:
        client: lightkube's.
        kinds: what to follow.
        namespaces: where; none: everywhere.
        children: where it is told.
    """

    def __init__(
        self, client: AsyncClient, kinds: Sequence[Kind], namespaces: Sequence[str], children: Children
    ) -> None:
        self._watches = [
            Watch(client, kind, namespace, children) for kind in kinds for namespace in (namespaces or (None,))
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, patience: float) -> None:
        """Start, and wait until every kind has been listed. Raises TimeoutError after `patience` seconds."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(watch.run()) for watch in self._watches]
        async with asyncio.timeout(patience):
            for watch in self._watches:
                await watch.synced.wait()

    @property
    def listed(self) -> bool:
        """Whether every kind has been listed."""
        return all(watch.synced.is_set() for watch in self._watches)

    async def stop(self) -> None:
        """End every watch."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
