"""Watches against an API server that is a list of answers: what a gap has swallowed is found out by the next list."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User

from evalrun_cluster.client import Cluster, ExactClient
from evalrun_cluster.kinds import EVAL_RUN, KINDS, Kind
from evalrun_cluster.object_decoding import ListPage
from evalrun_operator.observation.children import Children, Known, Manifests
from evalrun_operator.observation.watches import ERROR_SECONDS, Watch, Watches

CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()
UID = "u-1"
KEY = ("evals", "run")


def pod(name: str, version: str = "1", uid: str = "") -> dict[str, Any]:
    labels = {"evalrun.dev/run-uid": UID, "evalrun.dev/run": "run"}
    uid = uid or f"uid-{name}"
    metadata = {"name": name, "namespace": "evals", "uid": uid, "labels": labels, "resourceVersion": version}
    return {"metadata": metadata}


@dataclass
class Server:
    """Returns each list in turn and then repeats the last; watches are answered with `code`."""

    lists: list[list[dict[str, Any]]]
    code: int = 410
    events: list[dict[str, Any]] = field(default_factory=list)
    """Of the first watch."""
    requests: list[httpx2.Request] = field(default_factory=list)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.method == "DELETE":
            return httpx2.Response(200, json={"kind": "Status", "status": "Success"}, request=request)
        if "watch=true" in str(request.url):
            if self.events:
                lines, self.events = [json.dumps(event) for event in self.events], []
                return httpx2.Response(200, content="\n".join(lines).encode(), request=request)
            body = {"kind": "Status", "status": "Failure", "code": self.code, "reason": "Expired", "message": "made up"}
            return httpx2.Response(self.code, json=body, request=request)
        items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return httpx2.Response(200, json={"metadata": {"resourceVersion": "7"}, "items": items}, request=request)


class Recorder(Children):
    """Records the versions that it is given."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.versions: asyncio.Queue[str] = asyncio.Queue()

    def put(self, manifest: dict[str, Any]) -> Known | None:
        self.versions.put_nowait(manifest["metadata"]["resourceVersion"])
        return super().put(manifest)


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[ExactClient]:
    transport = httpx2.MockTransport(server.answer)
    client = ExactClient(CONFIG, field_manager="x", transport=transport)
    async with client:
        yield client


@asynccontextmanager
async def watching(server: Server) -> AsyncIterator[tuple[Children, asyncio.Queue[tuple[str, str]]]]:
    woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    children = Children(woken.put_nowait)
    async with client_of(server) as client:
        watches = Watches(client, [(KINDS["Pod"], children)], [], children.missing_kinds)
        await watches.start(5)
        try:
            yield children, woken
        finally:
            await watches.stop()


async def until_there_are(children: Children, woken: asyncio.Queue[tuple[str, str]], names: set[str]) -> None:
    async with asyncio.timeout(10):
        while {seen.ref.name for seen in children.find_for_run("evals", UID)} != names:
            assert await woken.get() == KEY


async def test_object_deleted_in_a_gap_is_forgotten_by_the_next_list_and_its_run_is_woken() -> None:
    async with watching(Server([[pod("a"), pod("b")], [pod("a")]])) as (children, woken):
        await until_there_are(children, woken, {"a"})


async def test_object_created_in_a_gap_is_found_by_the_next_list() -> None:
    async with watching(Server([[], [pod("a"), pod("b")]])) as (children, woken):
        await until_there_are(children, woken, {"a", "b"})


async def test_object_unchanged_in_a_later_list_is_not_stored_again() -> None:
    children = Recorder()
    async with client_of(Server([[pod("a")], [pod("a")], [pod("a", "2")]])) as client:
        watches = Watches(client, [(KINDS["Pod"], children)], [], children.missing_kinds)
        await watches.start(5)
        async with asyncio.timeout(10):
            taken = [await children.versions.get() for _ in range(2)]
        await watches.stop()
    assert taken == ["1", "2"]


@pytest.mark.parametrize("code", [403, 200])
async def test_where_no_watch_is_possible_or_each_ends_at_once_lists_follow_ever_later(code: int) -> None:
    """Each list that worked had made the wait short again: every kind was listed five times a second.

    With 200 a proxy ends each watch at once and as if it were over, which left no pause at all.
    """
    times: asyncio.Queue[float] = asyncio.Queue()

    class Timed(Server):
        def answer(self, request: httpx2.Request) -> httpx2.Response:
            if "watch=true" not in str(request.url):
                times.put_nowait(asyncio.get_running_loop().time())
            elif code == 200:
                return httpx2.Response(200, content=b"", request=request)
            return super().answer(request)

    children = Children(lambda _: None)
    async with client_of(Timed([[pod("a")]], code=code)) as client:
        watch = Watch(client, KINDS["Pod"], None, children, set())
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(50):
            _, second, third = [await times.get() for _ in range(3)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert third - second >= ERROR_SECONDS[1]


async def test_successor_of_a_name_in_a_gap_stays_known_when_the_predecessor_is_forgotten() -> None:
    """A StatefulSet's next pod has the name of the last: it had been dropped in its place, and not found again."""
    server = Server([[pod("a"), pod("b")], [pod("a", "2", "uid-next")]])
    async with watching(server) as (children, woken):
        await until_there_are(children, woken, {"a"})  # b has gone: the former a is forgotten in the same step
        assert [seen.uid for seen in children.find_for_run("evals", UID)] == ["uid-next"]


async def test_watch_of_one_namespace_lists_again_after_an_error_event() -> None:
    """Such an error has no response of its own, which had ended the watch, and with it the operator."""
    expired = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    server = Server([[pod("a")], [pod("a"), pod("b")]], events=[{"type": "ERROR", "object": expired}])
    woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    children = Children(woken.put_nowait)
    async with client_of(server) as client:
        watches = Watches(client, [(KINDS["Pod"], children)], ["evals"], children.missing_kinds)
        await watches.start(5)
        await until_there_are(children, woken, {"a", "b"})
        assert not watches.broken.is_set()
        await watches.stop()


async def test_events_between_two_lists_are_taken_over() -> None:
    added, gone = {"type": "ADDED", "object": pod("b", "8")}, {"type": "DELETED", "object": pod("a", "9")}
    server = Server([[pod("a")], [pod("b", "8")]], events=[added, gone])
    async with watching(server) as (children, woken):
        await until_there_are(children, woken, {"b"})
    watch = next(request for request in server.requests if "watch=true" in str(request.url))
    assert watch.url.params["resourceVersion"] == "7"  # from where the list ended
    assert watch.url.params["labelSelector"] == "evalrun.dev/run-uid"  # not every pod of the cluster


@pytest.mark.parametrize("content_type", [None, "application/json"])
@pytest.mark.parametrize("body", [b"upstream connect error", b"[]", b'{"error": "no upstream"}'])
async def test_error_response_of_a_proxy_is_retried(content_type: str | None, body: bytes) -> None:
    server = Server([[pod("a")], [pod("a"), pod("b")]])
    errors = 2

    def behind_a_proxy(request: httpx2.Request) -> httpx2.Response:
        nonlocal errors
        if errors and (errors == 2) == ("watch=true" not in str(request.url)):  # the first list, the first watch
            errors -= 1
            headers = {} if content_type is None else {"Content-Type": content_type}
            return httpx2.Response(502, content=body, headers=headers, request=request)
        return server.answer(request)

    woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    children = Children(woken.put_nowait)
    async with ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(behind_a_proxy)) as client:
        watches = Watches(client, [(KINDS["Pod"], children)], [], children.missing_kinds)
        await watches.start(50)
        await until_there_are(children, woken, {"a", "b"})
        assert (errors, watches.broken.is_set()) == (0, False)
        await watches.stop()


@pytest.mark.parametrize("kind", ["RayCluster", "ScaledObject"])
async def test_kind_that_is_not_served_does_not_block_the_start(kind: str) -> None:
    def missing(request: httpx2.Request) -> httpx2.Response:
        body = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "made up"}
        return httpx2.Response(404, json=body, request=request)

    children = Children(lambda _: None)
    async with ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(missing)) as client:
        watch = Watch(client, KINDS[kind], None, children, children.missing_kinds)
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(5):
            await watch.answered.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert children.missing_kinds == {kind}


def foreign(attempt: str) -> dict[str, Any]:
    item = pod("foreign")
    item["metadata"]["annotations"] = {"evalrun.dev/attempt": attempt}
    return item


async def test_an_object_of_others_with_our_label_hides_no_object_of_ours() -> None:
    """`int` refuses more than 4,300 digits: the watch had ended for good."""
    async with watching(Server([[foreign("9" * 5000), pod("a")]])) as (children, woken):
        await until_there_are(children, woken, {"a", "foreign"})
    assert {seen.attempt for seen in children.find_for_run("evals", UID)} == {0}


async def test_an_object_that_cannot_be_read_is_skipped_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[str] = []
    children = Children(lambda _: None, counted.append)
    bad = {**pod("bad"), "kind": "Pod", "status": {"containerStatuses": [{"restartCount": "many"}]}}
    for _ in range(2):
        assert children.put(bad) is None
    assert counted == ["Pod", "Pod"]
    assert [record.getMessage() for record in caplog.records] == [
        "skipped Pod evals/bad, which has our label: ValueError: invalid literal for int() with base 10: 'many'"
    ]
    assert children.find_for_run("evals", UID) == []


async def test_an_object_that_becomes_unreadable_is_no_longer_known() -> None:
    bad = {**pod("a", "2"), "status": {"containerStatuses": [{"restartCount": "many"}]}}
    async with watching(Server([[pod("a"), pod("b")], [bad, pod("b")]])) as (children, woken):
        await until_there_are(children, woken, {"a", "b"})
        await until_there_are(children, woken, {"b"})


async def test_watch_that_ends_is_reported_as_broken() -> None:
    class Failing(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise RuntimeError("a mistake of ours")

    class Broken(ExactClient):
        async def list_pages(self, *_: object) -> AsyncIterator[ListPage]:
            yield ListPage(iter([Failing()]), "7", "")

    children = Children(lambda _: None)
    async with Broken(CONFIG, field_manager="x", transport=httpx2.MockTransport(Server([[]]).answer)) as client:
        watches = Watches(client, [(KINDS["Pod"], children)], [], set())
        with pytest.raises(TimeoutError, match="pods: no answer yet"):
            await watches.start(0.2)
        async with asyncio.timeout(5):
            await watches.broken.wait()
        assert watches.stale() == ["pods"]
        await watches.stop()


def refusing(namespaces: set[str], code: int = 403) -> httpx2.MockTransport:
    """Answer 403 for some namespaces, which may change, and an empty list for the others."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        place = request.url.path.split("/namespaces/")[1].split("/")[0]
        if place in namespaces:
            body = {"kind": "Status", "status": "Failure", "code": code, "reason": "Forbidden", "message": "not here"}
            return httpx2.Response(code, json=body, request=request)
        if "watch=true" in str(request.url):
            body = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "made up"}
            return httpx2.Response(410, json=body, request=request)
        item = {**pod("a"), "metadata": {**pod("a")["metadata"], "namespace": place}}
        return httpx2.Response(200, json={"metadata": {"resourceVersion": "7"}, "items": [item]}, request=request)

    return httpx2.MockTransport(answer)


@pytest.mark.parametrize("code", [403, 404])
async def test_a_lost_namespace_keeps_no_other_from_starting_and_is_picked_up_later(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    children, lost = Children(woken.put_nowait), {"team-b"}
    async with ExactClient(CONFIG, field_manager="x", transport=refusing(lost, code)) as client:
        watches = Watches(
            client, [(KINDS["Pod"], children)], ["team-a", "team-b"], children.missing_kinds, missing_seconds=0.01
        )
        await watches.start(5)
        try:
            assert await woken.get() == ("team-a", "run")
            assert watches.lost_namespaces() == {"team-b": "not here"}
            assert "namespace team-b: pods cannot be followed: not here" in caplog.text
            lost.clear()
            async with asyncio.timeout(5):
                while await woken.get() != ("team-b", "run"):
                    pass
            assert watches.lost_namespaces() == {}
            lost.add("team-b")
            async with asyncio.timeout(50):
                while children.find_for_run("team-b", UID):
                    assert await woken.get()
        finally:
            await watches.stop()


async def test_objects_of_another_namespace_are_not_the_runs() -> None:
    children = Children(lambda _: None)
    item = {**pod("a"), "kind": "Pod"}
    children.put({**item, "metadata": {**item["metadata"], "namespace": "prod"}})
    assert children.find_for_run("evals", UID) == []


def test_manifests_drop_managed_fields_and_runs_of_another_class() -> None:
    saw: list[tuple[dict[str, Any], bool]] = []
    runs = Manifests(lambda manifest, gone: saw.append((manifest, gone)), operator_class="nightly")
    metadata = {"name": "r", "namespace": "n", "uid": "u", "managedFields": [{}]}
    assert runs.put({"metadata": metadata, "spec": {}}) is None
    known = runs.put({"metadata": metadata, "spec": {"operatorClass": "nightly"}})
    assert known is not None
    runs.drop(known)
    plain = {"name": "r", "namespace": "n", "uid": "u"}
    assert saw == [({"metadata": plain, "spec": {"operatorClass": "nightly"}}, False), ({"metadata": plain}, True)]


async def test_delete_removes_dependent_pods_in_the_background() -> None:
    server = Server([[]])
    async with client_of(server) as client:
        await Cluster(client).delete("Job", "run-0f3b2-gen-1", "evals", "uid-1")
    (request,) = server.requests
    assert request.url.path == "/apis/batch/v1/namespaces/evals/jobs/run-0f3b2-gen-1"
    assert request.url.params["uid"] == "uid-1"  # another of that name is not deleted
    assert request.url.params["propagationPolicy"] == "Background"  # the API's default orphans a Job's pods


def deep_run(name: str, depth: int) -> str:
    nested = '{"a":' * depth + "1" + "}" * depth
    metadata = {"name": name, "namespace": "mallory", "uid": f"uid-{name}", "resourceVersion": "3"}
    return f'{{"metadata":{json.dumps(metadata)},"spec":{{"placement":{nested}}}}}'


def plain_run(name: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "evals", "uid": f"uid-{name}", "resourceVersion": "4"}
    return {"metadata": metadata, "spec": spec or {}}


async def test_watch_skips_an_object_nested_too_deeply_and_continues() -> None:
    """Such a run had ended the watch, and every restart of the operator met it again."""
    items = [deep_run("a", 5000), json.dumps(plain_run("b"))]
    page = f'{{"items":[{",".join(items)}],"metadata":{{"resourceVersion":"7"}}}}'
    changed = [deep_run("c", 5000), json.dumps(plain_run("d"))]
    events = [f'{{"type":"ADDED","object":{item}}}'.encode() for item in changed]

    def answer(request: httpx2.Request) -> httpx2.Response:
        content = b"\n".join(events) if "watch=true" in str(request.url) else page.encode()
        return httpx2.Response(200, content=content, request=request)

    saw: asyncio.Queue[str] = asyncio.Queue()
    skipped: list[tuple[Kind, str, str]] = []
    runs = Manifests(lambda manifest, _gone: saw.put_nowait(manifest["metadata"]["name"]))
    async with ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer)) as client:
        watches = Watches(
            client, [(EVAL_RUN, runs)], [], set(),
            skip=lambda kind, metadata, reason: skipped.append((kind, metadata["name"], reason)),
        )  # fmt: skip
        await watches.start(5)
        async with asyncio.timeout(5):
            assert [await saw.get() for _ in range(2)] == ["b", "d"]
        assert not watches.broken.is_set()
        await watches.stop()
    assert [(kind, name) for kind, name, _ in skipped][:2] == [(EVAL_RUN, "a"), (EVAL_RUN, "c")]
    assert skipped[0][2].startswith("RecursionError")


async def test_watch_skips_an_object_for_which_its_sink_fails_and_continues() -> None:
    saw: list[str] = []

    def take(manifest: dict[str, Any], _gone: bool) -> None:
        saw.append(str(manifest["spec"]["suspend"]))

    skipped: list[str] = []
    async with client_of(Server([[plain_run("bad"), plain_run("good", {"suspend": True})]])) as client:
        watches = Watches(
            client,
            [(EVAL_RUN, Manifests(take))],
            [],
            set(),
            skip=lambda _, metadata, __: skipped.append(metadata["name"]),
        )
        await watches.start(5)
        assert not watches.broken.is_set()
        await watches.stop()
    assert (saw[0], skipped[0]) == ("True", "bad")


@pytest.mark.parametrize("knows_the_field", [True, False])
async def test_watch_of_a_class_uses_a_field_selector_if_the_api_server_supports_one(knows_the_field: bool) -> None:
    requests: list[httpx2.Request] = []
    watched = asyncio.Event()

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        if "watch=true" in str(request.url):
            watched.set()
        if "fieldSelector" in request.url.params and not knows_the_field:
            status = {"kind": "Status", "status": "Failure", "code": 400, "message": "field label not supported"}
            return httpx2.Response(400, json=status, request=request)
        return Server([[plain_run("a")]]).answer(request)

    runs = Manifests(lambda *_: None, operator_class="nightly")
    selectors = {EVAL_RUN: "spec.operatorClass=nightly"}
    async with ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(answer)) as client:
        watches = Watches(client, [(EVAL_RUN, runs)], [], set(), field_selectors=selectors)
        await watches.start(5)
        async with asyncio.timeout(5):
            await watched.wait()
        await watches.stop()
    watch = next(request for request in requests if "watch=true" in str(request.url))
    assert watch.url.params.get("fieldSelector") == (selectors[EVAL_RUN] if knows_the_field else None)
    assert requests[0].url.params["fieldSelector"] == selectors[EVAL_RUN]
