"""Builds requests to the judge when a stream worker has room for them."""

from evalrun_aggregator.judging.answers import Answers
from evalrun_aggregator.judging.item_rules import ItemRules
from evalrun_aggregator.judging.item_traces import ItemTraces
from evalrun_aggregator.judging.judge_health import JudgeHealth
from evalrun_aggregator.judging.work import Work, WorkSource
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.connections.grpc_channel import MAX_MESSAGE_BYTES

ROOM_FOR_ENVELOPE = 4096


class Requests:
    """The requests of all stream workers.

    Args:
        item_states: shows which items were cancelled meanwhile.
        source: source of the items.
        answers: takes the items that no message can hold.
        health: counts the verdicts of the judge.
        rules: build the requests.
        traces: traces of the items; None: they have none.
    """

    def __init__(
        self,
        item_states: ItemStates,
        source: WorkSource,
        answers: Answers,
        health: JudgeHealth,
        rules: ItemRules,
        traces: ItemTraces | None,
    ) -> None:
        self._item_states = item_states
        self._source = source
        self._answers = answers
        self._health = health
        self._rules = rules
        self._traces = traces
        self._suites_sent: set[bytes] = set()

    async def wait(self) -> None:
        """Wait until there is an item to send. Raises LedgerError."""
        await self._source.wait()

    async def take(self) -> tuple[Work, judge_pb2.JudgeRequest]:
        """Wait for the next item, and return it with its request. Raises LedgerError."""
        while True:
            work = await self._source.take()
            if (request := self._build(work)) is not None:
                return work, request

    def _build(self, work: Work) -> judge_pb2.JudgeRequest | None:
        """Return an item's request; None if it is settled without the judge: cancelled, or too large for a message."""
        if self._item_states.state(work.index) is ItemState.CANCELLED:
            self._source.done()
            return None
        request = self._rules.request(work.index, work.completion)
        if self._traces is not None:
            request.traceparent = self._traces.get_traceparent(work.index)
        work.verdicts_at_sending = self._health.verdicts
        if request.suite_digest in self._suites_sent and not work.with_tests:
            request.ClearField("stdio")
        elif request.suite_digest:
            self._suites_sent.add(request.suite_digest)
        size = request.ByteSize()
        if size + ROOM_FOR_ENVELOPE > MAX_MESSAGE_BYTES:
            limit = MAX_MESSAGE_BYTES >> 20
            self._answers.give_up(work, f"the request has {size >> 20} MiB; a message holds {limit} MiB")
            return None
        return request
