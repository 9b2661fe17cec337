"""OpenTelemetry spans: one trace per item, from its generation to its verdict. Does nothing while tracing is off.

On where OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT) is set and the packages are there (extra `tracing`).
Like logging it is set up once, at the start of a process (`start_tracing`), and used from anywhere. While tracing is
off, `span` returns a shared context that does nothing, and the packages are not imported.

A W3C traceparent ties spans of several processes together. Nobody stores it: `derive_traceparent` derives it from an
item's name, so that it is the same after every restart. It travels in messages (many items share an RPC, so its
metadata cannot carry a trace per item) and as a header to the sandbox.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from evalrun_runtime.distribution import describe_install

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

logger = logging.getLogger(__name__)

HEADER: Final = "traceparent"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_SECONDS: Final = 5.0
"""Seconds that the end of a process waits for its last spans to be sent."""

Attributes = Mapping[str, "str | int | float | bool"]
_NO_ATTRIBUTES: Final[Attributes] = {}
_NOTHING: Final = nullcontext()


@dataclass(frozen=True)
class _Ids:
    trace: int
    span: int


_given_ids: ContextVar[_Ids | None] = ContextVar("evalrun_trace_ids", default=None)
"""The ids that the next span gets, instead of random ones."""


class Tracing:
    """The tracing of this process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("evalrun")

    @contextmanager
    def span(self, name: str, parent: str, attributes: Attributes) -> Iterator[None]:
        """See `span`."""
        from opentelemetry.trace import use_span

        opened = self._tracer.start_span(name, self._context(parent), attributes=dict(attributes))
        with use_span(opened, end_on_exit=True):
            yield

    def past(self, name: str, seconds: float, parent: str, attributes: Attributes) -> None:
        """See `past_span`."""
        end = time.time_ns()
        start = end - int(max(0.0, seconds) * 1e9)
        opened = self._tracer.start_span(name, self._context(parent), attributes=dict(attributes), start_time=start)
        opened.end(end)

    def root(self, name: str, traceparent: str, started_at: float, ended_at: float, attributes: Attributes) -> None:
        """See `root_span`."""
        from opentelemetry.context import Context

        _, trace, span, _ = traceparent.split("-")
        token = _given_ids.set(_Ids(int(trace, 16), int(span, 16)))
        try:
            opened = self._tracer.start_span(
                name, Context(), attributes=dict(attributes), start_time=int(started_at * 1e9)
            )
        finally:
            _given_ids.reset(token)
        opened.end(int(max(started_at, ended_at) * 1e9))

    def is_sampled(self, trace: int) -> bool:
        """Return whether a trace of ours is recorded (OTEL_TRACES_SAMPLER)."""
        from opentelemetry.sdk.trace.sampling import Decision

        return self._provider.sampler.should_sample(None, trace, "problem").decision is Decision.RECORD_AND_SAMPLE

    def current(self) -> str:
        """See `current_traceparent`."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get(HEADER, "")

    def stop(self) -> None:
        """Send the remaining spans within FLUSH_SECONDS; the SDK would wait 30 s for an unreachable collector."""
        ending = threading.Thread(target=self._provider.shutdown, name="tracing-end", daemon=True)
        ending.start()
        ending.join(FLUSH_SECONDS)

    def _context(self, parent: str) -> Context | None:
        """Return the context that a traceparent names; None for the context of the enclosing span."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        return TraceContextTextMapPropagator().extract({HEADER: parent}) if parent else None


_tracing: Tracing | None = None


def start_tracing(service: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Turn tracing on where the environment asks for it; says whether it is on. Called once, at the start.

    Args:
        service: the name of this process, as `service.name` says it: `evalrun-<service>`.
        environment: OpenTelemetry's own variables; the packages read the others (headers, TLS, sampler) themselves.
    """
    if not any(environment.get(name) for name in ENDPOINTS) or environment.get("OTEL_SDK_DISABLED") == "true":
        return False
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    # The sandbox's image has neither package: it contains nothing but the executor.
    except ImportError:
        logger.warning(
            "no spans are sent: OTEL_EXPORTER_OTLP_ENDPOINT is set, but its packages are not installed: %s",
            describe_install("tracing"),
        )
        return False
    use_processor(service, BatchSpanProcessor(OTLPSpanExporter()))
    return True


def use_processor(service: str, processor: SpanProcessor) -> None:
    """Turn tracing on with spans going to this processor."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class GivenIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            given = _given_ids.get()
            return super().generate_trace_id() if given is None else given.trace

        def generate_span_id(self) -> int:
            given = _given_ids.get()
            return super().generate_span_id() if given is None else given.span

    global _tracing
    resource = Resource.create({"service.name": f"evalrun-{service}"})
    provider = TracerProvider(resource=resource, id_generator=GivenIds(), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    _tracing = Tracing(provider)


def stop_tracing() -> None:
    """Send the remaining spans and turn tracing off; wait for FLUSH_SECONDS at most."""
    global _tracing
    tracing, _tracing = _tracing, None
    if tracing is not None:
        tracing.stop()


def derive_traceparent(*names: object) -> str:
    """Return the traceparent that these names always have; empty while tracing is off.

    Its span is the trace's root, which `root_span` records at the end.
    """
    if _tracing is None:
        return ""
    digest = blake2b("\0".join(map(str, names)).encode(), digest_size=24).hexdigest()
    return f"00-{digest[:32]}-{digest[32:]}-{'01' if _tracing.is_sampled(int(digest[:32], 16)) else '00'}"


def span(name: str, parent: str = "", attributes: Attributes = _NO_ATTRIBUTES) -> AbstractContextManager[None]:
    """Record a span of the block; spans opened inside are its children.

    Args:
        name: of the kind of work, never of an item.
        parent: a traceparent from another process; empty: the span around, if any.
        attributes: of this span.
    """
    return _NOTHING if _tracing is None else _tracing.span(name, parent, attributes)


def past_span(name: str, seconds: float, parent: str = "", attributes: Attributes = _NO_ATTRIBUTES) -> None:
    """Record a span that took `seconds` and has just ended."""
    if _tracing is not None:
        _tracing.past(name, seconds, parent, attributes)


def root_span(name: str, traceparent: str, started_at: float, ended_at: float, attributes: Attributes) -> None:
    """Record the root of a trace that `derive_traceparent` named; Unix seconds."""
    if _tracing is not None and traceparent:
        _tracing.root(name, traceparent, started_at, ended_at, attributes)


def current_traceparent() -> str:
    """Return the current span's traceparent, to be sent along, or an empty text without a span or tracing."""
    return "" if _tracing is None else _tracing.current()


def trace_headers() -> dict[str, str]:
    """Return the HTTP header with the current span, or no header if there is none."""
    traceparent = current_traceparent()
    return {HEADER: traceparent} if traceparent else {}
