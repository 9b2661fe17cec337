"""EvalRuns of the current cluster, as a user reads and writes them; the cluster is KUBECONFIG's or the pod's own.

Needs the extra `cluster`; only `cluster_commands` imports it, and only when a cluster is asked for. I/O only.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import httpx2
import yaml
from httpx2.websockets import HTTPXWSException, WebSocketUpgradeError
from lightkube import ApiError, AsyncClient, ConfigError
from lightkube.codecs import from_dict
from lightkube.core.exceptions import LoadResourceError
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType
from pydantic import ValidationError

from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRun, EvalSchedule
from evalrun_cluster.aiohttp_transport import find_proxy
from evalrun_cluster.client import find_resource, is_missing, read_plain_errors, translate_error
from evalrun_cluster.connection import find_cluster, make_context
from evalrun_cluster.errors import RefusedError, UnreachableError
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE
from evalrun_cluster.port_forward import PortForward
from evalrun_cluster.reader_pod import reader_pod
from evalrun_runtime.exits import BadInputError

FIELD_MANAGER = "evalrun-cli"
REQUEST_SECONDS = 15.0
START_SECONDS = 120.0
POLL_SECONDS = 0.5

ResultT = TypeVar("ResultT")


class CommandFailedError(BadInputError):
    """A command in a pod ended with an exit code other than 0."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class RunPod:
    """A pod of a run."""

    name: str
    part: str
    containers: tuple[str, ...]
    ready: bool


@dataclass(frozen=True)
class ListedRuns:
    """The EvalRuns of a namespace, by name."""

    runs: list[EvalRun]
    unreadable: dict[str, str]
    """Why an EvalRun cannot be read, by its name: another release wrote it."""


class ClusterRuns:
    """The EvalRuns of a namespace.

    Args:
        client: lightkube's.
        namespace: of the runs; None uses the context's namespace.
        start_seconds: how long a pod that reads a volume may take to start.
    """

    def __init__(self, client: AsyncClient, namespace: str | None, start_seconds: float = START_SECONDS) -> None:
        self._client = client
        self._start_seconds = start_seconds
        self.namespace = str(namespace or client.namespace)

    async def apply(self, document: dict[str, Any]) -> str:
        """Apply an object of a file server-side. Return `kind/name`.

        Raises:
            BadInputError: the API server refuses the object, or evalrun cannot apply its kind.
            UnreachableError: it does not answer.
        """
        kind, metadata = str(document.get("kind")), document.get("metadata") or {}
        what = f"{kind} {metadata.get('name')}"
        given = {**document, "metadata": {**metadata, "namespace": metadata.get("namespace") or self.namespace}}
        try:
            item = find_resource(EVAL_RUN).from_dict(given) if kind == EVAL_RUN.kind else from_dict(given)
        except (LoadResourceError, AttributeError) as error:
            raise BadInputError(f"{what}: evalrun cannot apply this kind: use kubectl") from error
        await self._send(lambda: self._client.apply(item, force=True), f"applying {what}")
        return f"{kind.lower()}/{metadata.get('name')}"

    async def schedule(self, name: str) -> EvalSchedule | None:
        """Return an EvalSchedule, or None.

        Raises:
            BadInputError: the API server refuses.
            UnreachableError: it does not answer.
        """
        resource = find_resource(EVAL_SCHEDULE)
        try:
            found = await self._client.get(resource, name, namespace=self.namespace)
        except httpx2.HTTPError as error:
            if is_missing(error):
                return None
            raise _translate_error(error, f"reading EvalSchedule {name}") from error
        return EvalSchedule.from_wire(dict(found))

    async def trigger(self, name: str, value: str) -> bool:
        """Ask an EvalSchedule for a start by a new value of its annotation. Returns False if there is no such schedule.

        Raises:
            BadInputError: the API server refuses.
            UnreachableError: it does not answer.
        """
        patch = {"metadata": {"annotations": {names.TRIGGER_ANNOTATION: value}}}
        resource = find_resource(EVAL_SCHEDULE)
        try:
            await self._client.patch(resource, name, patch, namespace=self.namespace, patch_type=PatchType.MERGE)
        except httpx2.HTTPError as error:
            if is_missing(error):
                return False
            raise _translate_error(error, f"changing EvalSchedule {name}") from error
        return True

    async def get(self, name: str) -> EvalRun | None:
        """Return an EvalRun, or None.

        Raises:
            BadInputError: the API server refuses, serves no EvalRuns, or another release wrote this EvalRun.
            UnreachableError: it does not answer.
        """
        what = f"reading EvalRun {name}"
        try:
            found = await self._client.get(find_resource(EVAL_RUN), name, namespace=self.namespace)
        except httpx2.HTTPError as error:
            if is_missing(error):
                if isinstance(error, ApiError) and error.status.details is not None and error.status.details.name:
                    return None
                raise BadInputError(
                    "this cluster serves no EvalRuns: install evalrun there first (docs/install.md)"
                ) from error
            raise _translate_error(error, what) from error
        return _read_run(dict(found))

    async def list_runs(self) -> ListedRuns:
        """Return the EvalRuns of the namespace. One that cannot be read hides no other. Raises as `get` does."""

        async def fetch_items() -> list[dict[str, Any]]:
            found = self._client.list(find_resource(EVAL_RUN), namespace=self.namespace)
            return [dict(each) async for each in found]

        listed = ListedRuns([], {})
        items = await self._send(fetch_items, "listing EvalRuns")
        for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
            try:
                listed.runs.append(_read_run(item))
            except BadInputError as error:
                listed.unreadable[str(item["metadata"]["name"])] = str(error)
        return listed

    async def pods(self, run: EvalRun) -> list[RunPod]:
        """Return the pods of a run by part and name. Raises as `get` does."""
        uid = str(run.metadata.uid)

        async def fetch_items() -> list[Pod]:
            pods = self._client.list(Pod, namespace=self.namespace, labels={names.RUN_UID_LABEL: uid})
            return [pod async for pod in pods]

        found = await self._send(fetch_items, f"listing the pods of EvalRun {run.metadata.name}")
        return sorted((_run_pod(pod) for pod in found), key=lambda pod: (pod.part, pod.name))

    async def log(self, pod: RunPod, container: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
        """Return a container's log line by line. Raises as `get` does."""
        lines = self._client.log(
            pod.name, namespace=self.namespace, container=container, follow=follow, tail_lines=tail, newlines=False
        )
        try:
            async for line in lines:
                yield line
        except httpx2.HTTPError as error:
            raise _translate_error(error, f"reading the log of {pod.name}") from error

    async def run_in(self, pod: RunPod, command: Sequence[str], output: BinaryIO) -> None:
        """Run a command in a pod's first container, its stdout into `output`.

        Raises:
            BadInputError: it may not be run there. CommandFailedError: it failed; the message is its own.
            UnreachableError: the connection broke.
        """
        what = f"running {command[0]} in pod {pod.name}"
        try:
            answer = await self._send(
                lambda: self._client.exec(
                    pod.name, namespace=self.namespace, container=pod.containers[0], command=list(command),
                    stdout=output, stderr=True,
                ),
                what,
            )  # fmt: skip
        except WebSocketUpgradeError as error:
            code = error.response.status_code
            raise BadInputError(f"{what}: refused ({code}): you need the right `create` on pods/exec") from error
        except HTTPXWSException as error:
            raise UnreachableError(f"{what}: the connection broke: {type(error).__name__} {error}") from error
        if answer.exit_code != 0:
            said = " ".join(str(answer.stderr or "").split()[-60:])
            raise CommandFailedError(f"{what}: exit code {answer.exit_code}: {said}", int(answer.exit_code))

    def forward(self, pod: RunPod, port: int) -> PortForward:
        """Return a forwarder of connections to a port of a pod, which may listen on its loopback interface only."""
        return PortForward(self._client._client._client, self.namespace, pod.name, port)

    @asynccontextmanager
    async def reader(self, run: EvalRun, claim: str) -> AsyncIterator[RunPod]:
        """Run a pod that mounts a claim of a run whose aggregator has gone; it is deleted at the end.

        Raises:
            BadInputError: it cannot be made, or does not start; the message says why.
            UnreachableError: the API server does not answer.
        """
        try:
            manifest = reader_pod(run, claim)
        except KeyError as error:
            raise BadInputError(f"EvalRun {run.metadata.name} does not say which image its aggregator had") from error
        made = await self._send(
            lambda: self._client.create(Pod.from_dict(manifest)), f"creating a pod that reads claim {claim}"
        )
        name = _run_pod(made).name
        try:
            yield await self._wait_for_start(name)
        finally:
            await self._send(lambda: self._client.delete(Pod, name, namespace=self.namespace), f"deleting pod {name}")

    async def _wait_for_start(self, name: str) -> RunPod:
        waits = "it was not scheduled"
        try:
            async with asyncio.timeout(self._start_seconds):
                while True:
                    pod = await self._send(
                        lambda: self._client.get(Pod, name, namespace=self.namespace), f"reading pod {name}"
                    )
                    if (known := _run_pod(pod)).ready:
                        return known
                    waits = _waits_for(pod) or waits
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise BadInputError(f"pod {name} did not start in {self._start_seconds:.0f} s: {waits}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, request: Callable[[], Awaitable[ResultT]], what: str) -> ResultT:
        try:
            return await request()
        except httpx2.HTTPError as error:
            raise _translate_error(error, what) from error


def _read_run(item: dict[str, Any]) -> EvalRun:
    try:
        return EvalRun.from_wire(item)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInputError(
            f"EvalRun {item['metadata']['name']} cannot be read: {place}: {first['msg']}: use the evalrun of the "
            "release that wrote it"
        ) from error


def connect(namespace: str | None, transport: httpx2.AsyncBaseTransport | None = None) -> ClusterRuns:
    """Connect to the current cluster. Called inside the running loop.

    Args:
        namespace: None uses the context's namespace.
        transport: carries the requests; None uses the network.

    Raises:
        BadInputError: no cluster is configured.
    """
    try:
        config = find_cluster()
        if transport is None and config is not None:
            transport = httpx2.AsyncHTTPTransport(verify=make_context(config), proxy=find_proxy(config.cluster.server))
        client = AsyncClient(
            config, field_manager=FIELD_MANAGER, timeout=httpx2.Timeout(REQUEST_SECONDS), transport=transport
        )
        read_plain_errors(client)
    except (ConfigError, OSError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise BadInputError(f"no cluster: {said}: set KUBECONFIG, or run on this machine with --local") from error
    return ClusterRuns(client, namespace)


def _translate_error(error: httpx2.HTTPError, what: str) -> Exception:
    known = translate_error(error, what)
    return BadInputError(str(known)) if isinstance(known, RefusedError) else known


def _waits_for(pod: Pod) -> str:
    """Return why a pod does not run yet; empty if it does not say."""
    status = pod.status
    said = [
        f"{container.state.waiting.reason}: {container.state.waiting.message or ''}"
        for container in (status.containerStatuses if status is not None else None) or ()
        if container.state is not None and container.state.waiting is not None
    ]
    said += [
        f"{condition.reason}: {condition.message}"
        for condition in (status.conditions if status is not None else None) or ()
        if condition.type == "PodScheduled" and condition.status == "False"
    ]
    return " ".join("; ".join(said).split()).strip(": ")


def _run_pod(pod: Pod) -> RunPod:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    labels = (metadata.labels if metadata is not None else None) or {}
    conditions = (status.conditions if status is not None else None) or []
    return RunPod(
        name=str(metadata.name if metadata is not None else ""),
        part=str(labels.get(names.COMPONENT_LABEL, "")),
        containers=tuple(container.name for container in (spec.containers if spec is not None else ())),
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in conditions),
    )
