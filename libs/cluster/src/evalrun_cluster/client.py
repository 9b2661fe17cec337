"""Reads and writes objects of the API server. I/O only, no decision."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

import httpx2
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from evalrun_api import names
from evalrun_api.v1alpha1 import API_VERSION, KIND, EvalRunStatus, EvalScheduleStatus
from evalrun_cluster.errors import (
    ClusterError,
    ConflictError,
    NamespaceGoneError,
    NameTakenError,
    RefusedError,
    RetryError,
    UnreachableError,
)
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE, EVENT, KINDS, LEASE, SECRET, WORKLOAD, Kind
from evalrun_cluster.object_decoding import ListPage, UndecodableObject, decode_event, decode_page
from evalrun_cluster.objects import Object, RunIdentity, StatusEvent, newest_warning
from evalrun_runtime.backoff import backoff_seconds

ResultT = TypeVar("ResultT")

RETRIES = 3
"""How often a write is tried again soon; after that the whole pass is tried again."""
RETRY_SECONDS = 0.05
COME_BACK = frozenset({408, 429, 500, 502, 503, 504})
CONFLICT, NOT_FOUND = 409, 404
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Cause in the API server's Status when nothing can be created in a namespace that is being deleted."""


def find_resource(kind: Kind) -> type[GenericNamespacedResource]:
    """Return lightkube's class for a kind: plain dictionaries on the wire, whatever the kind."""
    return RESOURCES[kind.kind]


def _make(kind: Kind) -> type[GenericNamespacedResource]:
    made: type[GenericNamespacedResource] = create_namespaced_resource(kind.group, kind.version, kind.kind, kind.plural)
    return made


RESOURCES = {
    kind.kind: _make(kind) for kind in (*KINDS.values(), SECRET, EVENT, EVAL_RUN, EVAL_SCHEDULE, LEASE, WORKLOAD)
}


def translate_error(error: httpx2.HTTPError, what: str) -> ClusterError:
    """Return the error as one of ours, whose class tells the caller what to do; `what` names the attempted operation
    and its object."""
    text = " ".join(str(error).split())[:1000]
    code = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) and error.response else 0
    if isinstance(error, ApiError):
        code = error.status.code or code
    if code == CONFLICT:
        return ConflictError(f"{what}: {text}")
    # Timeouts and broken connections come without a code.
    if code == 0 or code in COME_BACK:
        return UnreachableError(f"{what}: {type(error).__name__} {text}")
    refused = NamespaceGoneError if NAMESPACE_TERMINATING in _find_causes(error) else RefusedError
    return refused(f"{what}: {text}")


def _find_causes(error: httpx2.HTTPError) -> set[str | None]:
    """Return the machine-readable causes of an error from the API server."""
    details = error.status.details if isinstance(error, ApiError) else None
    return {cause.reason for cause in (None if details is None else details.causes) or ()}


def is_missing(error: httpx2.HTTPError) -> bool:
    """Return whether the object, or its whole kind, is not there."""
    if isinstance(error, ApiError):
        return error.status.code == NOT_FOUND
    return isinstance(error, httpx2.HTTPStatusError) and error.response.status_code == NOT_FOUND


def find_controller(item: Object) -> str | None:
    """Return the uid of an object's controller; None if it has none."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


def decode_secret(secret: Object) -> dict[str, str]:
    """Return the texts in a Secret by key; a value that is no text, such as a keystore, is garbled."""
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in (secret.get("data") or {}).items()}


def refuse_foreign(wanted: Object, there: Object) -> None:
    """Raise if an existing object of the wanted name does not belong to the wanted object's run or owner.

    Raises:
        NameTakenError: the object belongs to another owner, or to none.
        RetryError: it belongs to an earlier run of the name.
    """
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    labels = there["metadata"].get("labels") or {}
    ours, theirs = find_controller(wanted), find_controller(there)
    if theirs is not None and theirs == ours:
        return
    wanted_labels = wanted["metadata"]["labels"]
    same_run = labels.get(names.RUN_UID_LABEL) == wanted_labels.get(names.RUN_UID_LABEL)
    # A volume that outlives its run has no owner.
    if ours is None and same_run:
        return
    maker = next((one for one in wanted["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    whose_kind = KIND if maker is None else maker["kind"]
    whose_name = wanted_labels.get(names.RUN_LABEL) if maker is None else maker["name"]
    owners = there["metadata"].get("ownerReferences") or ()
    if any((own["kind"], own["name"], own["uid"] == theirs) == (whose_kind, whose_name, True) for own in owners):
        raise RetryError(f"{kind} {name} belongs to an earlier {whose_kind} {whose_name} and is still being deleted")
    owner = next((f"{owner['kind']} {owner['name']}" for owner in owners if owner.get("controller")), "")
    manager = labels.get("app.kubernetes.io/managed-by", "")
    we = "the run" if whose_kind == KIND else whose_name
    whose = f"it belongs to {owner}" if owner else f"{we} did not make it"
    managed = f" (managed by {manager})" if manager else ""
    raise NameTakenError(f"{kind} {name} is there already, and {whose}{managed}")


async def label_plain_errors(response: httpx2.Response) -> None:
    """Mark an error response that is no JSON object, or has no Content-Type, as plain text: a proxy's often is such.

    lightkube 1.0 reads the header, and then parses the body as a Status, without a check. That raises KeyError or
    ValueError, which no caller retries.
    """
    if not response.is_error:
        return
    try:
        is_object = isinstance(json.loads(await response.aread()), dict)
    except ValueError:
        is_object = False
    if not is_object or "Content-Type" not in response.headers:
        response.headers["Content-Type"] = "text/plain"


def read_plain_errors(client: AsyncClient) -> None:
    """Configure lightkube's client to take an error answer that is not the API server's own as any other error."""
    client._client._client.event_hooks["response"].append(label_plain_errors)


class ExactClient(AsyncClient):
    """lightkube's client, extended by a precondition of `delete`, and by errors whose text is a proxy's."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - lightkube's own
        super().__init__(*args, **options)
        read_plain_errors(self)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def delete_exactly(self, kind: str, name: str, namespace: str, uid: str, *, abandon: bool = False) -> None:
        """Delete an object if it has this uid, and, in the background, the objects that it owns.

        With `abandon` a pod is gone at once, whatever its node reports.
        """
        # A Job deleted without saying so would orphan its pods.
        params = {"uid": uid, "propagationPolicy": CascadeType.BACKGROUND.value}
        if abandon:
            params["gracePeriodSeconds"] = "0"
        await self._client.request("delete", res=RESOURCES[kind], name=name, namespace=namespace, params=params)

    async def list_pages(
        self, kind: Kind, namespace: str | None, selectors: Mapping[str, str], page_size: int
    ) -> AsyncIterator[ListPage]:
        """List a kind in one namespace, or in all.

        Raises:
            httpx2.HTTPError: the API server refuses, or its answer does not come or is no list.
        """
        lightkube: Any = self._client
        request = lightkube.prepare_request(
            "list", res=find_resource(kind), namespace=namespace or ALL_NS, params={"limit": page_size, **selectors}
        )
        while True:
            response = await lightkube.send(lightkube.build_adapter_request(request))
            lightkube.raise_for_status(response)
            page = decode_page(response.content)
            yield page
            if not page.continuation:
                return
            request.params["continue"] = page.continuation

    async def watch_objects(
        self, kind: Kind, namespace: str | None, selectors: Mapping[str, str], version: str, seconds: int
    ) -> AsyncIterator[tuple[str, Object | UndecodableObject]]:
        """Watch a kind from a version on, for at most `seconds`: the type of each change, and the object.

        Raises:
            httpx2.HTTPError: the watch is refused or breaks; ApiError if the API server ends it with an error.
        """
        lightkube: Any = self._client
        params = {"timeoutSeconds": seconds, "resourceVersion": version, **selectors}
        request = lightkube.prepare_request(
            "list", res=find_resource(kind), namespace=namespace or ALL_NS, watch=True, params=params
        )
        request.timeout = lightkube._watch_timeout
        response = await lightkube.send(lightkube.build_adapter_request(request), stream=True)
        try:
            if response.is_error:
                await response.aread()
            lightkube.raise_for_status(response)
            async for line in response.aiter_lines():
                yield decode_event(line.encode())
        finally:
            await response.aclose()

    async def get_group(self, group: str) -> None:
        """Read the discovery document of an API group. Raises httpx2.HTTPError."""
        http = self._client._client
        (await http.get(f"/apis/{group}")).raise_for_status()


class Cluster:
    """The API server, as the operator writes to it.

    Args:
        client: lightkube's, with our field manager.
    """

    def __init__(self, client: ExactClient) -> None:
        self._client = client

    async def serves_runs(self, namespace: str | None) -> bool:
        """Return whether EvalRuns are served, i.e. whether their CRD is there.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        pages = self._client.list_pages(EVAL_RUN, namespace, {}, 1)

        async def first() -> bool:
            async for _ in pages:
                break
            return True

        return await self._found(first, "listing EvalRuns") is not None

    async def serves_group(self, group: str) -> bool:
        """Return whether an API group is served, by the API server itself or by a server behind it.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """

        async def read() -> bool:
            await self._client.get_group(group)
            return True

        return await self._found(read, f"asking for API group {group}") is not None

    async def read_run(self, namespace: str, name: str) -> Object | None:
        """Return the EvalRun of that name, or None. Lists one object, so it needs only `list`.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        return await self._fetch_by_name(EVAL_RUN.kind, name, namespace)

    async def read_tokens(self, run: RunIdentity) -> dict[str, str] | None:
        """Return what the run's Secret holds, by key; None if the run has no Secret yet.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        name = names.token_secret(run.name)
        secret = await self._fetch_by_name(SECRET.kind, name, run.namespace)
        if secret is None or find_controller(secret) != run.uid:
            # A Secret of another owner: creating ours makes the API server report the conflict.
            return None
        return decode_secret(secret)

    async def create(self, manifest: Object) -> None:
        """Create an object; an existing object of the same run is accepted.

        Raises:
            NameTakenError: the object belongs to another owner, or to none.
            RetryError: it belongs to an earlier run of the name, and is being deleted with it.
            ClusterError: the request failed; see the module `errors`.
        """
        await self.create_or_find(manifest)

    async def create_or_find(self, manifest: Object) -> Object:
        """Create an object. Returns it as the API server has it, also where it is there already.

        Raises:
            NameTakenError: the object belongs to another owner, or to none.
            RetryError: it belongs to an earlier run of the name, and is being deleted with it.
            ClusterError: the request failed; see the module `errors`.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        item = RESOURCES[kind].from_dict(manifest)
        try:
            made = await self._send_with_retries(
                lambda: self._client.create(item), f"creating {kind} {name}", repeat_conflicts=False
            )
        except ConflictError:
            there = await self._fetch_by_name(kind, name, namespace)
            if there is None:
                raise
            refuse_foreign(manifest, there)
            return there
        stored: Object = made.to_dict()
        return stored

    async def change(self, kind: str, name: str, namespace: str, uid: str, patch: list[Object]) -> None:
        """Change some fields of an object that has this uid.

        Raises:
            ConflictError: it is gone, or another object has taken its name.
            ClusterError: the request failed; see the module `errors`.
        """
        whole = [{"op": "test", "path": "/metadata/uid", "value": uid}, *patch]
        await self._send_exact_change(
            lambda: self._client.patch(RESOURCES[kind], name, whole, namespace=namespace, patch_type=PatchType.JSON),
            f"changing {kind} {name}", (kind, name, namespace, uid),
        )  # fmt: skip

    async def apply(self, manifest: Object, uid: str) -> None:
        """Apply an object server-side, on condition that the existing object has this uid.

        Raises:
            ConflictError: it is gone, or another object has taken its name.
            ClusterError: the request failed; see the module `errors`.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        item = RESOURCES[kind].from_dict({**manifest, "metadata": {**metadata, "uid": uid}})
        await self._send_exact_change(
            lambda: self._client.apply(item, force=True), f"applying {kind} {name}", (kind, name, namespace, uid)
        )

    async def delete(self, kind: str, name: str, namespace: str, uid: str, *, abandon: bool = False) -> None:
        """Delete an object and, in the background, the objects that it owns; it is no error if it is gone already.

        Args:
            kind: the object's.
            name: the object's.
            namespace: the object's.
            uid: of the object; another object of that name stays.
            abandon: do not wait until a pod's node confirms its end.

        Raises:
            ConflictError: another object has taken its name.
            ClusterError: the request failed; see the module `errors`.
        """
        await self._gone_or(
            lambda: self._client.delete_exactly(kind, name, namespace, uid, abandon=abandon), f"deleting {kind} {name}"
        )

    async def read(self, kind: str, name: str, namespace: str) -> Object | None:
        """Return an object by its name, or None. This takes no right beyond `list`; a Secret takes `get`.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        return await self._fetch_by_name(kind, name, namespace)

    async def pods_of_job(self, job: str, namespace: str) -> list[Object]:
        """Return the pods of a Job.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        found = self._client.list(RESOURCES["Pod"], namespace=namespace, labels={"batch.kubernetes.io/job-name": job})

        async def collect_pods() -> list[Object]:
            return [dict(pod) async for pod in found]

        return await self._once(collect_pods, f"listing the pods of Job {job}")

    async def write_status(self, manifest: Object, status: EvalRunStatus | EvalScheduleStatus) -> Object | None:
        """Write a status if its object has not changed since it was read. Return the new object, None if it is gone.

        Raises:
            ConflictError: it has changed.
            ClusterError: the request failed; see the module `errors`.
        """
        kind, metadata = str(manifest.get("kind", KIND)), manifest["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        # The API server takes the status alone from it, and the version as a precondition.
        identity = {field: metadata[field] for field in ("name", "namespace", "uid", "resourceVersion")}
        item = RESOURCES[kind].Status.from_dict(
            {"apiVersion": API_VERSION, "kind": kind, "metadata": identity, "status": status.to_wire()}
        )
        written = await self._found(
            lambda: self._client.replace(item, name, namespace=namespace), f"writing the status of {kind} {name}"
        )
        return None if written is None else dict(written)

    async def last_warning(self, namespace: str, uid: str) -> StatusEvent | None:
        """Return the last warning that Kubernetes recorded of an object and that may keep it from starting, if any.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        found = self._client.list(
            find_resource(EVENT), namespace=namespace, fields={"involvedObject.uid": uid, "type": "Warning"}
        )

        async def newest() -> StatusEvent | None:
            return newest_warning([dict(event) async for event in found])

        return await self._once(newest, f"listing the events of an object in {namespace}")

    async def kueue_workloads(self, namespace: str, uid: str) -> list[Object] | None:
        """Return Kueue's Workloads of an object; None if the cluster does not serve them.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        found = self._client.list(find_resource(WORKLOAD), namespace=namespace, labels={names.QUEUED_UID_LABEL: uid})

        async def read() -> list[Object]:
            return [dict(item) async for item in found]

        workloads: list[Object] | None = await self._found(read, f"listing Kueue's Workloads in {namespace}")
        return workloads

    async def read_lease(self, name: str, namespace: str) -> Object | None:
        """Return a Lease, or None.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        found = await self._found(
            lambda: self._client.get(find_resource(LEASE), name, namespace=namespace), f"reading Lease {name}"
        )
        return None if found is None else dict(found)

    async def write_lease(self, lease: Object) -> Object:
        """Create a Lease, or replace the version that it names. Once: whoever leads has no time to wait.

        Raises:
            ConflictError: it has changed, or is there already.
            ClusterError: the request failed; see the module `errors`.
        """
        item, metadata = RESOURCES[LEASE.kind].from_dict(lease), lease["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        if "resourceVersion" in metadata:
            written = await self._once(
                lambda: self._client.replace(item, name, namespace=namespace), f"renewing Lease {name}"
            )
        else:
            written = await self._once(lambda: self._client.create(item), f"creating Lease {name}")
        return dict(written)

    async def read_secret(self, name: str, namespace: str) -> Object | None:
        """Return a Secret, or None.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        return await self._fetch_by_name(SECRET.kind, name, namespace)

    async def fill_secret(self, secret: Object, values: Mapping[str, str]) -> None:
        """Write some keys of a Secret of the chart, and note on it that its content is ours and not the chart's.

        Raises:
            ConflictError: it has changed since it was read, or is gone.
            ClusterError: the request failed; see the module `errors`.
        """
        name, version = secret["metadata"]["name"], secret["metadata"]["resourceVersion"]
        patch = {
            "metadata": {"resourceVersion": version, "annotations": {names.FILLED_ANNOTATION: names.FIELD_MANAGER}},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
        }
        namespace = secret["metadata"]["namespace"]
        await self._once(
            lambda: self._client.patch(
                RESOURCES[SECRET.kind], name, patch, namespace=namespace, patch_type=PatchType.MERGE
            ),
            f"writing Secret {name}",
        )

    async def record(self, run: RunIdentity, event: StatusEvent, time: str, kind: str = KIND) -> None:
        """Record an event of a run, or of an object of another kind of ours.

        Raises:
            ClusterError: the request failed; see the module `errors`.
        """
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{run.name}.", "namespace": run.namespace},
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": event.message[:1000],
            "involvedObject": {
                "apiVersion": API_VERSION, "kind": kind, "name": run.name, "namespace": run.namespace, "uid": run.uid,
            },
            "source": {"component": names.FIELD_MANAGER},
            "reportingComponent": names.FIELD_MANAGER,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }  # fmt: skip
        item = RESOURCES["Event"].from_dict(manifest)
        await self._once(lambda: self._client.create(item), f"recording an event of {kind} {run.name}")

    async def _fetch_by_name(self, kind: str, name: str, namespace: str) -> Object | None:
        """Return an object by its name, or None. This takes no right beyond `list`; a Secret takes `get`."""
        what = f"reading {kind} {name}"
        # Secrets are never listed.
        if kind == SECRET.kind:
            secret = await self._found(lambda: self._client.get(RESOURCES[kind], name, namespace=namespace), what)
            return None if secret is None else dict(secret)
        found = self._client.list(RESOURCES[kind], namespace=namespace, fields={"metadata.name": name})

        async def fetch_first() -> Object | None:
            return next(iter([dict(item) async for item in found]), None)

        return await self._once(fetch_first, what)

    async def _send_exact_change(
        self, request: Callable[[], Awaitable[Any]], what: str, target: tuple[str, str, str, str]
    ) -> None:
        """Send a change of a specific object.

        The API server replies 422 to a wrong uid, but also to much else: read the object.
        """
        kind, name, namespace, uid = target
        try:
            await self._send_with_retries(request, what)
        except RefusedError as error:
            there = await self._fetch_by_name(kind, name, namespace)
            if there is None or there["metadata"]["uid"] != uid:
                raise ConflictError(f"{what}: another object has its name by now") from error
            raise

    async def _send_with_retries(
        self, request: Callable[[], Awaitable[ResultT]], what: str, *, repeat_conflicts: bool = True
    ) -> ResultT:
        """Send a request that may be repeated, again soon where the API server could not do it just now."""
        for attempt in range(RETRIES):
            try:
                return await self._once(request, what)
            except RetryError as error:
                if isinstance(error, ConflictError) and not repeat_conflicts:
                    raise
                await asyncio.sleep(backoff_seconds(attempt + 1, RETRY_SECONDS))
        return await self._once(request, what)

    async def _once(self, request: Callable[[], Awaitable[ResultT]], what: str) -> ResultT:
        try:
            return await request()
        except httpx2.HTTPError as error:
            raise translate_error(error, what) from error

    async def _gone_or(self, request: Callable[[], Awaitable[None]], what: str) -> None:
        await self._send_with_retries(lambda: self._found(request, what), what)

    async def _found(self, request: Callable[[], Awaitable[Any]], what: str) -> Any:  # noqa: ANN401 - JSON
        try:
            return await request()
        except httpx2.HTTPError as error:
            if is_missing(error):
                return None
            raise translate_error(error, what) from error
