"""The trace of each item: it starts with the item's work, goes along to the judge, and ends with the verdict."""

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.items import RunItems
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_results.samples import FINAL_STATUS_NAMES
from evalrun_runtime.tracing import derive_traceparent, root_span


class ItemTraces:
    """Names the traces of a run's items. Nothing is stored: a name follows from the run's id and the item's key.

    Args:
        run_id: the same over restarts of the run, different for another run.
        items: the items of the run.
    """

    def __init__(self, run_id: str, items: RunItems) -> None:
        self._run_id = run_id
        self._items = items

    def get_traceparent(self, index: int) -> str:
        """Return an item's traceparent; empty while tracing is off."""
        return derive_traceparent(self._run_id, *self._items.get_key(index))

    def record_root_span(self, index: int, completion: StoredCompletion, verdict: StoredVerdict) -> None:
        """Record the root span of an item's trace, from the completion request, if there was one, to the verdict."""
        traceparent = self.get_traceparent(index)
        if not traceparent:
            return
        key = self._items.get_key(index)
        number = judge_pb2.FinalStatus.ValueType(verdict.final_status)
        status = FINAL_STATUS_NAMES.get(number, "") if verdict.judged else "not_judged"
        root_span(
            "problem",
            traceparent,
            completion.started_at or verdict.recorded_at,
            verdict.recorded_at,
            {
                "dataset": key.dataset,
                "problem_id": key.problem_id,
                "sample": key.sample,
                "turn": key.turn,
                "repeat": key.repeat,
                "final_status": status,
                "accepted": verdict.accepted,
            },
        )
