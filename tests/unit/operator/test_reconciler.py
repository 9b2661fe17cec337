"""The reconciler that EvalRuns and EvalSchedules share: what wakes an object, and when a reconciliation is made
again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from builders.operator.world import START
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User

from evalrun_cluster.client import Cluster, ExactClient
from evalrun_cluster.errors import (
    ClusterError,
    ConflictError,
    NamespaceGoneError,
    RefusedError,
    RetryError,
    UnreachableError,
)
from evalrun_cluster.objects import Object
from evalrun_operator.observation.children import Key
from evalrun_operator.reconcilers.reconciler import (
    CONFLICT_SECONDS,
    FIRST_RETRY_SECONDS,
    MAX_REFUSED_SECONDS,
    MAX_RETRY_SECONDS,
    Reconciler,
    ReconcileResult,
)
from evalrun_operator.reconcilers.work_queue import FIRST

CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()
KEY = ("evals", "one")


class Scripted(Reconciler):
    """A reconciler whose reconciliations end as they are told to."""

    def __init__(self, cluster: Cluster) -> None:
        self.woken: list[float] = []
        super().__init__("Thing", cluster, {}, lambda _, delay: self.woken.append(delay), lambda: START)
        self.forgotten: list[tuple[str, bool]] = []
        self.end: ReconcileResult | Exception = ReconcileResult(7.0)

    async def _pass(self, key: Key, manifest: Object) -> ReconcileResult:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    def _on_forgotten(self, key: Key, uid: str, *, replaced: bool) -> None:
        self.forgotten.append((uid, replaced))


@asynccontextmanager
async def scripted(events: list[str] | None = None) -> AsyncIterator[Scripted]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if events is not None:
            events.append(request.url.path)
        return httpx2.Response(200, json={}, request=request)

    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer))
    async with client:
        yield Scripted(Cluster(client))


def thing(version: int, uid: str = "a", **metadata: Any) -> Object:
    known = {"namespace": "evals", "name": "one", "uid": uid, "resourceVersion": str(version), "generation": 1}
    return {"metadata": {**known, "creationTimestamp": START.isoformat(), **metadata}}


@pytest.mark.parametrize(
    ("seen", "woken"),
    [
        ([thing(1)], [FIRST]),
        ([{**thing(1), "status": {"phase": "Running"}}], [0.0]),
        ([thing(1), thing(2)], [FIRST]),
        ([thing(1), thing(2, generation=2)], [FIRST, FIRST]),
        ([thing(1), thing(2, deletionTimestamp=START.isoformat())], [FIRST, FIRST]),
        ([thing(9), thing(10, generation=2), thing(9)], [FIRST, FIRST]),
        ([thing(1), thing(2, uid="b")], [FIRST, FIRST]),
    ],
)
async def test_saw_wakes_an_object_for_anything_new_besides_its_status(seen: list[Object], woken: list[float]) -> None:
    async with scripted() as reconciler:
        for manifest in seen:
            reconciler.saw(manifest)
        assert reconciler.woken == woken


async def test_saw_of_a_deleted_object_forgets_the_object_unless_another_has_its_name() -> None:
    async with scripted() as reconciler:
        reconciler.saw(thing(1))
        reconciler.saw(thing(2, uid="b"))
        reconciler.saw(thing(1), gone=True)
        assert reconciler.forgotten == [("a", False)]
        assert await reconciler.work(KEY) == 7.0
        reconciler.saw(thing(2, uid="b"), gone=True)
        assert await reconciler.work(KEY) is None


@pytest.mark.parametrize(
    ("error", "first", "limit"),
    [
        (ConflictError("x"), CONFLICT_SECONDS, MAX_RETRY_SECONDS),
        (UnreachableError("x"), FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS),
        (RetryError("x"), FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS),
        (RefusedError("x"), FIRST_RETRY_SECONDS, MAX_REFUSED_SECONDS),
    ],
)
async def test_work_after_failures_waits_longer_up_to_the_limit_of_their_class(
    error: ClusterError, first: float, limit: float
) -> None:
    async with scripted() as reconciler:
        reconciler.saw(thing(1))
        reconciler.end = error
        waits = [await reconciler.work(KEY) or 0.0 for _ in range(20)]
        assert waits[0] <= first * 1.5
        assert limit / 2 <= max(waits) <= limit
        reconciler.end = ReconcileResult(7.0)
        assert await reconciler.work(KEY) == 7.0
        reconciler.end = error
        assert (await reconciler.work(KEY) or 0.0) <= first * 1.5


async def test_work_after_a_failed_write_looks_again_at_the_objects_own_time_at_the_latest() -> None:
    async with scripted() as reconciler:
        reconciler.saw(thing(1))
        reconciler.end = ReconcileResult(2.0, RefusedError("x"))
        assert max([await reconciler.work(KEY) or 0.0 for _ in range(20)]) == 2.0


@pytest.mark.parametrize(
    ("error", "told"), [(RefusedError("x"), 1), (NamespaceGoneError("x"), 0), (RetryError("x"), 0)]
)
async def test_work_that_ends_in_a_refusal_gives_one_event(error: ClusterError, told: int) -> None:
    events: list[str] = []
    async with scripted(events) as reconciler:
        reconciler.saw(thing(1))
        reconciler.end = error
        for _ in range(3):
            await reconciler.work(KEY)
    assert len(events) == told


async def test_work_that_fails_unexpectedly_gives_one_event() -> None:
    events: list[str] = []
    async with scripted(events) as reconciler:
        reconciler.saw(thing(1))
        reconciler.end = RecursionError("maximum recursion depth exceeded")
        for _ in range(3):
            with pytest.raises(RecursionError):
                await reconciler.work(KEY)
    assert events == ["/api/v1/namespaces/evals/events"]
