"""The metrics, and what workers say of their replicas."""

from prometheus_client import CollectorRegistry

from evalrun_aggregator.ledger.entries import CompletionTally, StoredCompletion
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.replicas import ReplicaRegistry
from evalrun_aggregator.telemetry import ReplicaGauge, Telemetry
from evalrun_proto.ledger.v1 import ledger_pb2

OWN = {"run": "r", "namespace": "n"}


def made() -> tuple[Telemetry, CollectorRegistry, ItemStates]:
    registry = CollectorRegistry()
    telemetry = Telemetry("r", "n", registry, started_at=100.0)
    item_states = ItemStates(RunItems([DatasetItems("d", ["p", "q"]), DatasetItems("e", ["p"])]))
    telemetry.observe(item_states, lambda: [ReplicaGauge(up=True, in_flight=3)], lambda: 12.5)
    return telemetry, registry, item_states


def test_every_label_set_is_there_before_anything_happened() -> None:
    _, registry, _ = made()
    for state in ("pending", "generated", "accepted", "rejected", "not_judged"):
        expected = 2.0 if state == "pending" else 0.0
        assert registry.get_sample_value("evalrun_problems", {**OWN, "dataset": "d", "state": state}) == expected
    for reason in ("stop", "length", "other"):
        labels = {**OWN, "dataset": "e", "finish_reason": reason}
        assert registry.get_sample_value("evalrun_completions_total", labels) == 0
    assert registry.get_sample_value("evalrun_accepted_at_1", {**OWN, "dataset": "d"}) == 0
    assert registry.get_sample_value("evalrun_generated_tokens_total", OWN) == 0
    assert registry.get_sample_value("evalrun_generation_seconds_count", OWN) == 0
    assert registry.get_sample_value("evalrun_last_progress_timestamp_seconds", OWN) == 100
    assert registry.get_sample_value("evalrun_gpu_seconds_total", OWN) == 12.5
    assert registry.get_sample_value("evalrun_replica_inflight", {**OWN, "replica": "0"}) == 3


def test_metrics_follow_the_item_states_and_continue_from_the_ledger() -> None:
    telemetry, registry, item_states = made()
    telemetry.restore("d", CompletionTally("stop", 40, 1000))
    telemetry.record_completion("d", StoredCompletion(0, "x", "length", output_tokens=24, generation_seconds=0.3))
    telemetry.record_completion("d", StoredCompletion(0, "x", "surprising-reason-17", generation_seconds=700))
    item_states.move(0, ItemState.GENERATED)
    item_states.judge(0, judged=True, accepted=True, final_status=1)
    completions = {
        reason: registry.get_sample_value("evalrun_completions_total", {**OWN, "dataset": "d", "finish_reason": reason})
        for reason in ("stop", "length", "other")
    }
    assert completions == {"stop": 40, "length": 1, "other": 1}
    assert registry.get_sample_value("evalrun_generated_tokens_total", OWN) == 1024
    assert registry.get_sample_value("evalrun_generation_seconds_bucket", {**OWN, "le": "600.0"}) == 1
    assert registry.get_sample_value("evalrun_problems", {**OWN, "dataset": "d", "state": "accepted"}) == 1
    assert registry.get_sample_value("evalrun_accepted_at_1", {**OWN, "dataset": "d"}) == 1


class TestReplicaBook:
    def test_outage_cause_is_reported_until_it_ends(self) -> None:
        book = ReplicaRegistry()
        assert book.trouble(0.0) is None  # nobody has said anything
        a, b = (ledger_pb2.Replica(name=name, address=f"http://{name}") for name in "ab")
        book.report("w", [a, b], {}, 0.0)
        assert book.trouble(0.0) is None  # they are starting
        a.error = b.error = "HTTP 500: CUDA out of memory; next try within 8 s"
        book.report("w", [a, b], {}, 5.0)
        assert book.trouble(5.0) == "http://a: HTTP 500: CUDA out of memory; next try within 8 s (and 1 more)"
        assert book.trouble(500.0) is None  # old news
        b.up = True
        book.report("w", [a, b], {}, 6.0)
        assert book.trouble(6.0) is None

    def test_a_replica_that_is_no_longer_named_or_whose_worker_is_silent_is_down(self) -> None:
        book = ReplicaRegistry()
        a, b = (ledger_pb2.Replica(name=name, up=True, in_flight=2) for name in "ab")
        book.report("w", [a, b], {}, now=0)
        book.report("w", [b], {}, now=10)
        assert [(r.name, r.up, r.in_flight) for r in book.list_replicas(now=20)] == [("a", False, 0), ("b", True, 2)]
        assert [r.up for r in book.list_replicas(now=71)] == [False, False]

    def test_gpu_seconds_add_up_over_holders_and_never_decrease(self) -> None:
        book = ReplicaRegistry({"w": 10.0})
        book.report("w", [], {"w": 4.0}, now=0)
        book.report("v", [], {"v": 5.0}, now=0)
        assert book.gpu_seconds == 15.0

    def test_warnings_are_those_of_the_last_reports_each_once(self) -> None:
        book = ReplicaRegistry()
        book.report("w", [], {}, 0, ["old"])
        book.report("w", [], {}, 1, ["eager", "few"])
        book.report("v", [], {}, 1, ["eager"])
        assert book.warnings == ["eager", "few"]
