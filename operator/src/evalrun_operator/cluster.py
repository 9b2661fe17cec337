"""Writes to the API server, and reads the one thing that is not watched: the run's Secret. I/O only, no decision."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.types import CascadeType

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import API_VERSION, KIND, EvalRunStatus
from evalrun_operator.errors import ConflictError, OperatorError, RefusedError, RetryError, UnreachableError
from evalrun_operator.kinds import EVAL_RUN, EVENT, KINDS, SECRET, Kind
from evalrun_operator.observed import Seen
from evalrun_operator.resources import Object, RunIdentity
from evalrun_operator.status_report import StatusEvent

ResultT = TypeVar("ResultT")

RETRIES = 3
"""Times that a write is tried again soon; then the whole pass is."""
RETRY_SECONDS = 0.05
COME_BACK = frozenset({408, 429, 500, 502, 503, 504})
CONFLICT, NOT_FOUND = 409, 404


def resource_of(kind: Kind) -> type[GenericNamespacedResource]:
    """Give lightkube's class for a kind: plain dictionaries on the wire, whatever the kind."""
    return RESOURCES[kind.kind]


def _make(kind: Kind) -> type[GenericNamespacedResource]:
    made: type[GenericNamespacedResource] = create_namespaced_resource(kind.group, kind.version, kind.kind, kind.plural)
    return made


RESOURCES = {kind.kind: _make(kind) for kind in (*KINDS.values(), SECRET, EVENT, EVAL_RUN)}


def translated(error: httpx2.HTTPError, what: str) -> OperatorError:
    """Give the error as one of ours, by what the caller should do; `what` says what was tried, and on which object."""
    text = " ".join(str(error).split())[:1000]
    code = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) and error.response else 0
    if isinstance(error, ApiError):
        code = error.status.code or code
    if code == CONFLICT:
        return ConflictError(f"{what}: {text}")
    if code == 0 or code in COME_BACK:  # time-outs and broken connections come without a code
        return UnreachableError(f"{what}: {type(error).__name__} {text}")
    return RefusedError(f"{what}: {text}")


def is_missing(error: httpx2.HTTPError) -> bool:
    """Say whether the object, or its whole kind, is not there."""
    if isinstance(error, ApiError):
        return error.status.code == NOT_FOUND
    return isinstance(error, httpx2.HTTPStatusError) and error.response.status_code == NOT_FOUND


class Cluster:
    """The API server, as the operator writes to it.

    Args:
        client: lightkube's, with our field manager.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def serves_runs(self, namespace: str | None) -> bool:
        """Say whether EvalRuns are served, i.e. whether their CRD is there.

        Raises:
            OperatorError: as the module `errors` says.
        """
        runs = self._client.list(resource_of(EVAL_RUN), namespace=namespace or ALL_NS, chunk_size=1)

        async def first() -> bool:
            async for _ in runs:
                break
            return True

        return await self._found(first, "listing EvalRuns") is not None

    async def read_run(self, namespace: str, name: str) -> Object | None:
        """Read an EvalRun by its name; None where there is none. A list of one: it takes no right beyond `list`.

        Raises:
            OperatorError: as the module `errors` says.
        """
        runs = self._client.list(resource_of(EVAL_RUN), namespace=namespace, fields={"metadata.name": name})

        async def only() -> Object | None:
            return next(iter([dict(run) async for run in runs]), None)

        found: Object | None = await self._once(only, f"reading EvalRun {name}")
        return found

    async def read_token(self, run: RunIdentity) -> str | None:
        """Read the run's token; None where there is no Secret yet.

        Raises:
            RefusedError: there is a Secret of that name which is not this run's.
            RetryError: the API server did not answer.
        """
        name = names.token_secret(run.name)
        secret = await self._found(
            lambda: self._client.get(resource_of(SECRET), name, namespace=run.namespace), f"reading Secret {name}"
        )
        if secret is None:
            return None
        metadata = secret["metadata"]
        if (metadata.get("labels") or {}).get(names.RUN_UID_LABEL) != run.uid:
            raise RefusedError(f"Secret {name} belongs to something else: delete it, or wait until it is gone")
        return base64.b64decode(secret["data"][names.TOKEN_KEY]).decode()

    async def apply(self, manifest: Object) -> None:
        """Apply an object server-side; a Secret is only ever created, so that a token is never replaced.

        Raises:
            OperatorError: as the module `errors` says.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        what = f"applying {kind} {metadata['name']}"
        item = RESOURCES[kind].from_dict(manifest)
        if kind == SECRET.kind:
            await self._once(lambda: self._client.create(item), what)
        else:
            await self._tried(lambda: self._client.apply(item, force=True), what)

    async def delete(self, seen: Seen, namespace: str) -> None:
        """Delete an object and, in the background, what it owns; one that is gone is fine.

        Raises:
            OperatorError: as the module `errors` says.
        """
        kind, name = seen.ref.kind, seen.ref.name
        # A Job deleted without saying so would orphan its pods.
        await self._gone_or(
            lambda: self._client.delete(RESOURCES[kind], name, namespace=namespace, cascade=CascadeType.BACKGROUND),
            f"deleting {kind} {name}",
        )

    async def write_status(self, manifest: Object, status: EvalRunStatus) -> Object | None:
        """Write an EvalRun's status if it has not changed since it was read; gives the new object, None if it is gone.

        Raises:
            ConflictError: it has changed.
            OperatorError: as the module `errors` says.
        """
        item = RESOURCES[KIND].Status.from_dict({**manifest, "status": status.to_wire()})
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        written = await self._found(
            lambda: self._client.replace(item, name, namespace=namespace), f"writing the status of EvalRun {name}"
        )
        return None if written is None else dict(written)

    async def record(self, run: RunIdentity, event: StatusEvent, time: str) -> None:
        """Record an event of the run.

        Raises:
            OperatorError: as the module `errors` says.
        """
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{run.name}.", "namespace": run.namespace},
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": event.message[:1000],
            "involvedObject": {
                "apiVersion": API_VERSION, "kind": KIND, "name": run.name, "namespace": run.namespace, "uid": run.uid,
            },
            "source": {"component": names.FIELD_MANAGER},
            "reportingComponent": names.FIELD_MANAGER,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }  # fmt: skip
        item = RESOURCES["Event"].from_dict(manifest)
        await self._once(lambda: self._client.create(item), f"recording an event of EvalRun {run.name}")

    async def _tried(self, request: Callable[[], Awaitable[ResultT]], what: str) -> ResultT:
        """Send a request that may be repeated, again soon where the API server could not do it just now."""
        for attempt in range(RETRIES):
            try:
                return await self._once(request, what)
            except RetryError:
                await asyncio.sleep(RETRY_SECONDS * 2**attempt)
        return await self._once(request, what)

    async def _once(self, request: Callable[[], Awaitable[ResultT]], what: str) -> ResultT:
        try:
            return await request()
        except httpx2.HTTPError as error:
            raise translated(error, what) from error

    async def _gone_or(self, request: Callable[[], Awaitable[None]], what: str) -> None:
        await self._tried(lambda: self._found(request, what), what)

    async def _found(self, request: Callable[[], Awaitable[Any]], what: str) -> Any:  # noqa: ANN401 - JSON
        try:
            return await request()
        except httpx2.HTTPError as error:
            if is_missing(error):
                return None
            raise translated(error, what) from error
