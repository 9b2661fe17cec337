"""A receiver of OpenTelemetry spans over gRPC, in this process."""

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True)
class ReceivedSpan:
    """A span and who sent it."""

    service: str
    span: Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def seconds(self) -> float:
        return (self.span.end_time_unix_nano - self.span.start_time_unix_nano) / 1e9


@dataclass
class Receiver(service_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    spans: list[ReceivedSpan] = field(default_factory=list)
    address: str = ""
    _lock: Lock = field(default_factory=Lock)

    def Export(  # noqa: N802 - gRPC's name
        self, request: service.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> service.ExportTraceServiceResponse:
        del context
        with self._lock:
            for resource in request.resource_spans:
                (name,) = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
                self.spans += [ReceivedSpan(name, span) for scope in resource.scope_spans for span in scope.spans]
        return service.ExportTraceServiceResponse()

    def traces(self) -> dict[bytes, list[ReceivedSpan]]:
        found: defaultdict[bytes, list[ReceivedSpan]] = defaultdict(list)
        for received in self.spans:
            found[received.span.trace_id].append(received)
        return dict(found)


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(4))
    service_grpc.add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    receiver.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(1).wait()
