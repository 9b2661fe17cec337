"""Reports the endpoints' state to the ledger periodically, and to Prometheus if enabled."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from prometheus_client import Gauge

from evalrun_generator.endpoints.balancer import trouble
from evalrun_generator.endpoints.completion_client import OpenRequest
from evalrun_generator.endpoints.endpoint_admission import EndpointAdmission
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.ledger.ledger_client import LedgerClient
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.work_loop import WorkLoop
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger

logger = logging.getLogger(__name__)

IN_FLIGHT = Gauge("evalrun_generator_inflight", "Requests in flight.", ["replica"])
MIN_REPORT_SECONDS = 0.5
"""Minimum time between two reports, however often an endpoint fails and recovers."""
UP = Gauge("evalrun_generator_replica_up", "1 if the endpoint answers.", ["replica"])


def replicas(
    admission: EndpointAdmission, fleet: EndpointFleet, oldest: Mapping[str, OpenRequest]
) -> list[ledger.Replica]:
    """Return the state of every endpoint, admitted or not, in the given order.

    Args:
        admission: knows all endpoints.
        fleet: knows the admitted endpoints.
        oldest: the oldest request in flight at each endpoint that has a request.
    """
    states = {state.name: state for state in fleet.states}
    reported = []
    for name in admission.names:
        state = states.get(name)
        request = oldest.get(name)
        reported.append(
            ledger.Replica(
                name=name,
                address=name,
                up=state is not None and state.failing_since is None,
                in_flight=state.in_flight if state else 0,
                oldest_request_at=request.sent_at if request else 0.0,
                oldest_request_limit_seconds=request.limit_seconds if request else 0.0,
                models=admission.models.get(name, []),
                engine=admission.facts.get(name, {}),
                error=trouble(state) if state else admission.errors.get(name, ""),
            )
        )
    return reported


async def report_until_cancelled(
    ledger_client: LedgerClient, admission: EndpointAdmission, fleet: EndpointFleet, work: WorkLoop, seconds: float
) -> None:
    """Report until cancelled: at once, whenever an endpoint joins, fails or recovers, and at least every `seconds`."""
    news = asyncio.Event()
    for callbacks in (fleet.on_join, fleet.on_trouble, admission.on_trouble):
        callbacks.append(news.set)
    while True:
        news.clear()
        current = replicas(admission, fleet, work.oldest_requests())
        export(current)
        await ledger_client.report(current, [*admission.warnings, *work.warnings])
        await asyncio.sleep(min(seconds, MIN_REPORT_SECONDS))
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            # The interval is over.
            continue


def make_unexpected_end_error(reporting: "asyncio.Task[None]") -> GenerationStoppedError:
    """Return the error that ends the process, because without reports every endpoint would count as down."""
    error = None if reporting.cancelled() else reporting.exception()
    logger.error("the reports to the ledger ended unexpectedly", exc_info=error)
    return GenerationStoppedError(
        f"the reports to the ledger ended unexpectedly ({type(error).__name__}: {error}): run again to resume"
    )


def export(current: Sequence[ledger.Replica]) -> None:
    """Set the gauges, labelled by number: an address may be confidential, and changes with every start."""
    for number, replica in enumerate(current):
        IN_FLIGHT.labels(str(number)).set(replica.in_flight)
        UP.labels(str(number)).set(float(replica.up))
