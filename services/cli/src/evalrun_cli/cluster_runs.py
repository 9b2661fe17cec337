"""EvalRuns of the current cluster, as a user reads and writes them; the cluster is KUBECONFIG's or the pod's own.

Needs the extra `cluster`; only `cluster_commands` imports it, and only when a cluster is asked for. I/O only.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import httpx2
from httpx2.websockets import HTTPXWSException, WebSocketUpgradeError
from lightkube import ApiError, AsyncClient, ConfigError
from lightkube.codecs import from_dict
from lightkube.core.exceptions import LoadResourceError
from lightkube.resources.core_v1 import Pod

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import EvalRun
from evalrun_operator.cluster import is_missing, resource_of, translated
from evalrun_operator.errors import RefusedError, UnreachableError
from evalrun_operator.kinds import EVAL_RUN
from evalrun_runtime.exits import BadInputError

FIELD_MANAGER = "evalrun-cli"
REQUEST_SECONDS = 15.0

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class RunPod:
    """A pod of a run."""

    name: str
    part: str
    containers: tuple[str, ...]
    ready: bool


class ClusterRuns:
    """The EvalRuns of one namespace.

    Args:
        client: lightkube's.
        namespace: where; None: the context's own.
    """

    def __init__(self, client: AsyncClient, namespace: str | None) -> None:
        self._client = client
        self.namespace = str(namespace or client.namespace)

    async def apply(self, document: dict[str, Any]) -> str:
        """Apply an object of a file server-side; gives `kind/name`.

        Raises:
            BadInputError: the API server refuses it, or nothing is known of its kind.
            UnreachableError: it does not answer.
        """
        kind, metadata = str(document.get("kind")), document.get("metadata") or {}
        what = f"{kind} {metadata.get('name')}"
        given = {**document, "metadata": {**metadata, "namespace": metadata.get("namespace") or self.namespace}}
        try:
            item = resource_of(EVAL_RUN).from_dict(given) if kind == EVAL_RUN.kind else from_dict(given)
        except (LoadResourceError, AttributeError) as error:
            raise BadInputError(f"{what}: this command cannot apply it: apply it with kubectl") from error
        await self._tried(lambda: self._client.apply(item, force=True), f"applying {what}")
        return f"{kind.lower()}/{metadata.get('name')}"

    async def get(self, name: str) -> EvalRun | None:
        """Give an EvalRun; None where there is none.

        Raises:
            BadInputError: the API server refuses, or serves no EvalRuns.
            UnreachableError: it does not answer.
        """
        what = f"reading EvalRun {name}"
        try:
            found = await self._client.get(resource_of(EVAL_RUN), name, namespace=self.namespace)
        except httpx2.HTTPError as error:
            if is_missing(error):
                if isinstance(error, ApiError) and error.status.details is not None and error.status.details.name:
                    return None
                raise BadInputError(
                    "this cluster serves no EvalRuns: install evalrun there first (docs/install.md)"
                ) from error
            raise _translated(error, what) from error
        return EvalRun.from_wire(dict(found))

    async def pods(self, run: EvalRun) -> list[RunPod]:
        """Give the pods of a run by part and name. Raises as `get` does."""
        uid = str(run.metadata.uid)

        async def listed() -> list[Pod]:
            pods = self._client.list(Pod, namespace=self.namespace, labels={names.RUN_UID_LABEL: uid})
            return [pod async for pod in pods]

        found = await self._tried(listed, f"listing the pods of EvalRun {run.metadata.name}")
        return sorted((_run_pod(pod) for pod in found), key=lambda pod: (pod.part, pod.name))

    async def log(self, pod: RunPod, container: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
        """Give a container's log line by line. Raises as `get` does."""
        lines = self._client.log(
            pod.name, namespace=self.namespace, container=container, follow=follow, tail_lines=tail, newlines=False
        )
        try:
            async for line in lines:
                yield line
        except httpx2.HTTPError as error:
            raise _translated(error, f"reading the log of {pod.name}") from error

    async def run_in(self, pod: RunPod, command: Sequence[str], output: BinaryIO) -> None:
        """Run a command in a pod's first container, its stdout into `output`.

        Raises:
            BadInputError: it failed, or may not be run there; the message is its own.
            UnreachableError: the connection broke.
        """
        what = f"running {command[0]} in pod {pod.name}"
        try:
            answer = await self._tried(
                lambda: self._client.exec(
                    pod.name, namespace=self.namespace, container=pod.containers[0], command=list(command),
                    stdout=output, stderr=True,
                ),
                what,
            )  # fmt: skip
        except WebSocketUpgradeError as error:
            code = error.response.status_code
            raise BadInputError(f"{what}: refused ({code}): it takes the right `create` on pods/exec") from error
        except HTTPXWSException as error:
            raise UnreachableError(f"{what}: the connection broke: {type(error).__name__} {error}") from error
        if answer.exit_code != 0:
            said = " ".join(str(answer.stderr or "").split()[-60:])
            raise BadInputError(f"{what}: it ended with {answer.exit_code}: {said}")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _tried(self, request: Callable[[], Awaitable[ResultT]], what: str) -> ResultT:
        try:
            return await request()
        except httpx2.HTTPError as error:
            raise _translated(error, what) from error


def connect(namespace: str | None, transport: httpx2.AsyncBaseTransport | None = None) -> ClusterRuns:
    """Connect to the current cluster. Called inside the running loop.

    Args:
        namespace: None: the context's own.
        transport: what requests go through; None: the network.

    Raises:
        BadInputError: no cluster is configured.
    """
    try:
        client = AsyncClient(field_manager=FIELD_MANAGER, timeout=httpx2.Timeout(REQUEST_SECONDS), transport=transport)
    except (ConfigError, OSError) as error:
        said = " ".join(str(error).split())
        raise BadInputError(f"no cluster: {said}: set KUBECONFIG, or run on this machine with --local") from error
    return ClusterRuns(client, namespace)


def _translated(error: httpx2.HTTPError, what: str) -> Exception:
    known = translated(error, what)
    return BadInputError(str(known)) if isinstance(known, RefusedError) else known


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
