"""What kopf is for: it follows the EvalRuns, logs in, starts and ends the operator, and answers liveness.

Only `on.event` handlers: they need no finalizer, so an EvalRun can be deleted while the operator is away, and they keep
nothing in the object. (Should a handler that keeps state ever be added: its notes go to annotations under our prefix.)
Passes, retries and errors are the controller's and the queue's; starting ends as TemporaryError or not at all.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import kopf

from evalrun_operator import names
from evalrun_operator.errors import OperatorError
from evalrun_operator.kinds import EVAL_RUN


class Life(Protocol):
    """What the handlers drive; `app.Operator` is one."""

    async def start(self) -> bool:
        """List everything, then work; False where the CRD is missing. Raises OperatorError and TimeoutError."""
        ...

    async def stop(self) -> None:
        """End the work."""
        ...

    def saw_run(self, manifest: dict[str, Any], *, gone: bool) -> None:
        """Take over an EvalRun as it was seen."""
        ...

    @property
    def listed(self) -> bool:
        """Whether everything has been listed."""
        ...


def build_registry(operator: Life) -> kopf.OperatorRegistry:
    """Give kopf's registry with the operator's handlers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's own arguments
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: object) -> None:
        configure(settings)
        try:
            served = await operator.start()
        except TimeoutError as error:
            raise kopf.TemporaryError("the API server did not list everything in time", delay=5) from error
        except OperatorError as error:
            raise kopf.TemporaryError(str(error), delay=2) from error
        if not served:  # kopf would look for it once, and then wait for ever
            raise kopf.TemporaryError("EvalRuns are not served: install the CRD (k8s/crd.yaml)", delay=2)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: object) -> None:
        await operator.stop()

    @kopf.on.event(EVAL_RUN.group, EVAL_RUN.version, EVAL_RUN.plural, registry=registry)
    async def saw(event: kopf.RawEvent, **_: object) -> None:  # async: kopf gives a plain function a thread
        operator.saw_run(plain(event["object"]), gone=event["type"] == "DELETED")

    @kopf.on.probe(id="listed", registry=registry)
    def listed(**_: object) -> bool:
        return operator.listed

    return registry


class NoDiffs(kopf.DiffBaseStorage):
    """What kopf compares an object with: nothing. `on.event` handlers ask for no differences.

    kopf's own would copy every object that it sees, twice: more than half of what an event cost the operator.
    """

    def build(
        self,
        *,
        body: kopf.Body,
        extra_fields: Iterable[str | tuple[str, ...] | list[str] | None] | None = None,
    ) -> kopf.BodyEssence:
        """Give nothing of the object."""
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> None:
        """Know nothing of an earlier state."""
        del body

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Keep nothing."""
        del body, patch, essence


def configure(settings: kopf.OperatorSettings) -> None:
    """Set kopf up: one replica, no events of its own, no permission beyond EvalRuns."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True  # it would watch CRDs and namespaces of the whole cluster
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.PREFIX)
    settings.persistence.diffbase_storage = NoDiffs()


def plain(item: Any) -> dict[str, Any]:  # noqa: ANN401 - an object as kopf gives it
    """Give an EvalRun without what nobody reads but the API server: managedFields is half of it."""
    manifest = dict(item)
    manifest["metadata"] = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return manifest
