"""Handlers of kopf, which logs in, starts and ends the operator, and answers liveness probes.

The EvalRuns are followed by `observation.watches`, like every other object: when one namespace refuses kopf's watch,
kopf ends the operator for all others (docs/decisions/0011). No handler keeps state, so there is no finalizer: an
EvalRun can be deleted while the operator is away. Reconciliations, retries and errors are handled by the reconcilers
and their queues. A start that fails raises TemporaryError, so that kopf tries again.
"""

import ssl
from dataclasses import fields
from typing import Any, Protocol

import kopf

from evalrun_api import names
from evalrun_cluster.errors import ClusterError
from evalrun_runtime.connections.cluster_authority import accept_cluster_authority


class OperatorLifecycle(Protocol):
    """Interface that the handlers use. `app.Operator` implements it."""

    async def start(self) -> bool:
        """List all objects, then work. Return False if the CRD is missing. Raises ClusterError and TimeoutError."""
        ...

    async def stop(self) -> None:
        """End the work."""
        ...

    def stale(self) -> list[str]:
        """Return the kinds whose watches have reported nothing for too long."""
        ...


class ApiServerConnection(kopf.ConnectionInfo):
    """Kopf's connection. It accepts every certificate authority that the operator's own connection accepts."""

    @classmethod
    def from_kopf(cls, found: kopf.ConnectionInfo) -> "ApiServerConnection":
        """Return kopf's connection as an instance of this class."""
        return cls(**{each.name: getattr(found, each.name) for each in fields(found)})

    def as_ssl_context(self) -> ssl.SSLContext:
        """Return the context of kopf's requests."""
        return accept_cluster_authority(super().as_ssl_context())


def build_registry(operator: OperatorLifecycle) -> kopf.OperatorRegistry:
    """Return kopf's registry with the operator's handlers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's own arguments
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        return None if found is None else ApiServerConnection.from_kopf(found)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: object) -> None:
        configure(settings)
        try:
            served = await operator.start()
        except TimeoutError as error:
            raise kopf.TemporaryError(f"the API server did not list everything in time: {error}", delay=5) from error
        except ClusterError as error:
            raise kopf.TemporaryError(str(error), delay=2) from error
        if not served:
            raise kopf.TemporaryError("EvalRuns are not served: install the CRD (k8s/crd.yaml)", delay=2)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: object) -> None:
        await operator.stop()

    @kopf.on.probe(id="stale", registry=registry)
    # The handler is async, because kopf runs a plain function in a thread, which has no event loop.
    async def stale(**_: object) -> list[str]:
        found = operator.stale()
        # Only an exception fails the probe: any other end of the handler answers 200.
        if found:
            raise kopf.PermanentError(f"not heard of for too long: {', '.join(found)}")
        return found

    return registry


def configure(settings: kopf.OperatorSettings) -> None:
    """Configure kopf without peering, events and scanning, so that kopf needs no permissions."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    # Scanning would watch CRDs and namespaces of the whole cluster.
    settings.scanning.disabled = True
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.PREFIX)
