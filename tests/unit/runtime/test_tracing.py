"""Spans: off by default and then free, on with one processor; the ids of an item's trace."""

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from evalrun_runtime.tracing import (
    current_traceparent,
    derive_traceparent,
    past_span,
    root_span,
    span,
    start_tracing,
    stop_tracing,
    trace_headers,
    use_processor,
)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    use_processor("test", SimpleSpanProcessor(exporter))
    yield exporter
    stop_tracing()


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}],
)
def test_tracing_is_off_without_an_endpoint(environment: dict[str, str]) -> None:
    assert start_tracing("test", environment) is False
    assert span("a") is span("b")  # one shared context that does nothing
    with span("a", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"):
        past_span("b", 1.0)
        assert (derive_traceparent("x"), current_traceparent(), trace_headers()) == ("", "", {})


def test_a_process_that_does_not_trace_does_not_import_the_packages() -> None:
    import subprocess

    code = "import sys, evalrun_runtime.process; print([n for n in sys.modules if n.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_spans_of_several_processes_meet_in_one_trace(spans: InMemorySpanExporter) -> None:
    item = derive_traceparent("run-1", "humaneval", "HumanEval/0", 0)
    assert (
        item
        == derive_traceparent("run-1", "humaneval", "HumanEval/0", 0)
        != derive_traceparent("run-2", "humaneval", "HumanEval/0", 0)
    )
    with span("judge", item):
        header = trace_headers()["traceparent"]
        with span("sandbox", attributes={"address": "a"}):
            past_span("inner", 0.5)
    with span("run", header):
        pass
    root_span("problem", item, 100.0, 103.5, {"dataset": "humaneval"})
    made = {each.name: each for each in spans.get_finished_spans()}
    ids = {name: each.context.span_id for name, each in made.items() if each.context}
    parents = {name: None if each.parent is None else each.parent.span_id for name, each in made.items()}
    assert parents == {
        "problem": None, "judge": ids["problem"], "sandbox": ids["judge"], "inner": ids["sandbox"], "run": ids["judge"],
    }  # fmt: skip
    assert {each.context.trace_id for each in made.values() if each.context} == {int(item.split("-")[1], 16)}
    assert (made["problem"].start_time, made["problem"].end_time) == (100 * 10**9, 103_500_000_000)
    inner = made["inner"]
    assert inner.start_time is not None
    assert inner.end_time is not None
    assert inner.end_time - inner.start_time == 500_000_000


def test_an_error_passes_through_and_is_on_the_span(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="broken"), span("a"):
        raise ValueError("broken")
    (made,) = spans.get_finished_spans()
    assert not made.status.is_ok


def test_a_trace_that_is_not_sampled_leaves_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    exporter = InMemorySpanExporter()
    use_processor("test", SimpleSpanProcessor(exporter))
    try:
        item = derive_traceparent("x")
        assert item.endswith("-00")
        with span("judge", item):
            pass
        root_span("problem", item, 1.0, 2.0, {})
    finally:
        stop_tracing()
    assert exporter.get_finished_spans() == ()
