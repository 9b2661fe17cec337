"""A run's spans, from every service, at a receiver in this process."""

from pathlib import Path

import pytest
import yaml
from builders.aggregator.otlp import otlp_receiver
from builders.command_line import DEMO, evalrun

PROBLEMS = 8
EVERY = {
    ("evalrun-generator", "generate", "problem"),
    ("evalrun-judge", "judge", "problem"),
    ("evalrun-judge", "queue", "judge"),
    ("evalrun-judge", "sandbox", "judge"),
    ("evalrun-sandbox", "run", "sandbox"),
    ("evalrun-judge", "compare", "judge"),
}
"""Service, span, and the span above it."""


def test_each_problem_of_a_run_is_one_trace_through_every_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = yaml.safe_load(DEMO.read_text())
    spec["spec"]["datasets"][0]["maxProblems"] = PROBLEMS
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(spec))
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
        done = evalrun("run", file, "--local", "--endpoint", "builtin:demo", "--output", tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
        traces = receiver.traces()
    assert len(traces) == PROBLEMS
    seen, together = set(), set()
    for spans in traces.values():
        by_id = {received.span.span_id: received for received in spans}
        (root,) = [received for received in spans if not received.span.parent_span_id]
        assert (root.name, root.service) == ("problem", "evalrun-aggregator")
        seen.add(next(a.value.string_value for a in root.span.attributes if a.key == "problem_id"))
        parents = {(r.service, r.name, by_id[r.span.parent_span_id].name) for r in spans if r is not root}
        assert {("evalrun-generator", "generate", "problem"), ("evalrun-judge", "judge", "problem")} <= parents <= EVERY
        together |= parents
        assert all(0 <= received.seconds <= root.seconds + 1 for received in spans)
    assert len(seen) == PROBLEMS
    assert together == EVERY  # a program that does not compile is compared with nothing
