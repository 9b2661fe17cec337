"""Says how the endpoints are: to the ledger, now and then, and to Prometheus, where it was asked for."""

import asyncio
from collections.abc import Sequence

from prometheus_client import Gauge

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.admission import Admission
from evalrun_generator.fleet import Fleet
from evalrun_generator.ledger_client import Ledger

IN_FLIGHT = Gauge("evalrun_generator_inflight", "Requests in flight.", ["replica"])
UP = Gauge("evalrun_generator_replica_up", "1 where the endpoint answers.", ["replica"])


def replicas(admission: Admission, fleet: Fleet) -> list[ledger.Replica]:
    """Give the state of every endpoint, admitted or not, in the order in which they were given."""
    states = {state.name: state for state in fleet.states}
    reported = []
    for name in admission.names:
        state = states.get(name)
        reported.append(
            ledger.Replica(
                name=name,
                address=name,
                up=state is not None and state.failing_since is None,
                in_flight=state.in_flight if state else 0,
                models=admission.models.get(name, []),
                error=state.last_error if state else admission.errors.get(name, ""),
            )
        )
    return reported


async def report_for_ever(ledger_client: Ledger, admission: Admission, fleet: Fleet, seconds: float) -> None:
    """Report at once, whenever an endpoint has joined, and else every `seconds`, until cancelled."""
    joined = asyncio.Event()
    fleet.on_join.append(joined.set)
    while True:
        joined.clear()
        current = replicas(admission, fleet)
        export(current)
        await ledger_client.report(current)
        try:
            async with asyncio.timeout(seconds):
                await joined.wait()
        except TimeoutError:
            continue  # time for the next


def export(current: Sequence[ledger.Replica]) -> None:
    """Set the gauges, by number: an address may hold what nobody else is to see, and changes with every start."""
    for number, replica in enumerate(current):
        IN_FLIGHT.labels(str(number)).set(replica.in_flight)
        UP.labels(str(number)).set(float(replica.up))
