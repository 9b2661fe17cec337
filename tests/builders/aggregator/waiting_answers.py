"""An aggregator's word to Prometheus about answers that wait for a verdict, as a test wants it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge, start_http_server


class WaitingAnswers:
    """Serves `evalrun_problems{state="generated"}`; `number` may be set at any time."""

    def __init__(self) -> None:
        self.number: Callable[[], int] = lambda: 0
        self.port = 0

    @contextmanager
    def serving(self) -> Iterator["WaitingAnswers"]:
        registry = CollectorRegistry()
        family = Gauge("evalrun_problems", "Samples of the run by state.", ["state"], registry=registry)
        family.labels("generated").set_function(lambda: self.number())
        server, thread = start_http_server(0, "127.0.0.1", registry)
        self.port = server.server_port
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
