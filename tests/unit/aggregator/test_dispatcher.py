"""The dispatcher over a real ledger and a judge in memory."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from builders.aggregator.process import MemoryJudge, MemoryStream

from evalrun_aggregator.clocks import Clocks
from evalrun_aggregator.judging.dispatcher import Dispatcher, DispatchSettings
from evalrun_aggregator.judging.item_rules import ItemRules
from evalrun_aggregator.judging.retry_policy import RetryPolicy
from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_client.fake_judge import make_scripted_verdict, unavailable
from evalrun_client.judge_client import JudgeAddress, JudgeLostError, JudgeRefusedError
from evalrun_proto.judge.v1 import judge_pb2

QUICK = RetryPolicy(attempts=3, first_delay=0.001, max_delay=0.002, min_busy_delay=0.001)


@asynccontextmanager
async def dispatching(
    directory: Path, judges: list[MemoryJudge], problems: int = 20, *, in_flight: int = 4, streams: int = 1,
    stream_age: float = 50.0, policy: RetryPolicy = QUICK, max_pages: int | None = None, suite: bytes = b"",
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[tuple[ItemStates, Ledger, Dispatcher, asyncio.Task[None]]]:  # fmt: skip
    item_states = ItemStates(RunItems([DatasetItems("d", [f"p{i}" for i in range(problems)])]))
    settings = DispatchSettings(in_flight, streams, stream_age, retries=policy)
    async with Ledger(directory / "l.db", max_pages=max_pages) as ledger:
        await ledger.add_completions(
            [StoredCompletion(item_states.items.get_row(i), f"p{i} accept") for i in range(problems)]
        )
        for index in range(problems):
            item_states.move(index, ItemState.GENERATED)

        def build(index: int, completion: StoredCompletion) -> judge_pb2.JudgeRequest:
            del index
            request = judge_pb2.JudgeRequest(submission=judge_pb2.Submission(text=completion.text), suite_digest=suite)
            request.stdio.tests.add(input="1", expected_output="1")
            return request

        asked: list[JudgeAddress] = list(judges)
        clocks, chance = Clocks(time.time, clock), random.Random(0)
        dispatcher = Dispatcher(
            item_states, ledger, asked, ItemRules(build), settings, clocks=clocks, chance=chance, traces=None,
            on_stored=lambda: None,
        )  # fmt: skip
        running = asyncio.create_task(dispatcher.run())
        try:
            yield item_states, ledger, dispatcher, running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def judged(item_states: ItemStates, running: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(10):
        while item_states.unjudged:
            await asyncio.wait({running}, timeout=0.001)
            if running.done():
                running.result()


async def test_every_completion_is_judged_once_and_its_verdict_stored(tmp_path: Path) -> None:
    judge = MemoryJudge()
    async with dispatching(tmp_path, [judge]) as (item_states, ledger, _, running):
        await judged(item_states, running)
        assert item_states.count(ItemState.ACCEPTED) == 20 == len(list(ledger.reader.verdict_rows()))
    assert sorted(r.submission.text for r in judge.asked) == sorted(f"p{i} accept" for i in range(20))
    # the judge gives a request up before the stream worker gives its stream up
    assert {r.deadline_seconds for r in judge.asked} == {0.9 * DispatchSettings().answer_timeout}


class Keeping:
    """A judge that keeps the tests it was sent, by digest, until it is told to forget them."""

    def __init__(self) -> None:
        self.kept: set[bytes] = set()
        self.whole = 0
        self.lacked = 0

    def __call__(self, request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict | judge_pb2.StreamFailure:
        if request.HasField("stdio"):
            self.whole += 1
            self.kept.add(request.suite_digest)
        elif request.suite_digest not in self.kept:
            self.lacked += 1
            return judge_pb2.StreamFailure(code=5, message="send them")
        return make_scripted_verdict(request)


@pytest.mark.parametrize(("judges", "most"), [(1, 1), (3, 15)])
async def test_large_tests_do_not_cross_with_every_answer(tmp_path: Path, judges: int, most: int) -> None:
    keeping = [Keeping() for _ in range(judges)]
    asked = [MemoryJudge(script=keep, address=str(n)) for n, keep in enumerate(keeping)]
    async with dispatching(tmp_path, asked, problems=40, in_flight=judges, suite=b"x" * 32) as (
        item_states,
        _,
        _,
        running,
    ):
        await judged(item_states, running)
        assert item_states.count(ItemState.ACCEPTED) == 40
    whole = sum(keep.whole for keep in keeping)
    assert judges <= whole <= most
    assert sum(keep.lacked for keep in keeping) < whole  # nobody lacked them twice


async def test_judge_that_stays_full_is_reported_as_trouble_after_a_minute(tmp_path: Path) -> None:
    """Such requests are sent again without end, since a full judge is no fault of theirs."""
    busy = judge_pb2.StreamFailure(code=8, message="every slot is taken", retry_after_ms=1)
    judge, now = MemoryJudge(script=lambda _request: busy), [0.0]
    async with dispatching(tmp_path, [judge], problems=1, clock=lambda: now[0]) as (
        item_states,
        _,
        dispatcher,
        running,
    ):
        for seconds, trouble in ((59.0, None), (75.0, "no verdict for 75 s; it says: every slot is taken")):
            asked = len(judge.asked)
            async with asyncio.timeout(10):
                while len(judge.asked) < asked + 2:
                    now[0] += 0.001
                    await asyncio.wait({running}, timeout=0.001)
            now[0] = seconds
            assert dispatcher.trouble == trouble
        judge.script = make_scripted_verdict
        async with asyncio.timeout(10):
            while item_states.unjudged:
                now[0] += 0.001
                await asyncio.wait({running}, timeout=0.001)
        assert dispatcher.trouble is None


async def test_trouble_judge_without_dns_is_reported_at_once(tmp_path: Path) -> None:
    """The gateway has waited for DNS before it says so; other failures may pass by themselves."""
    without_dns = judge_pb2.StreamFailure(
        code=14, message="DNS does not answer the gateway", reason=judge_pb2.FAILURE_REASON_NO_DNS
    )
    judge = MemoryJudge(script=lambda _request: without_dns)
    async with dispatching(tmp_path, [judge], problems=1, clock=lambda: 0.0) as (_, _, dispatcher, running):
        async with asyncio.timeout(10):
            while dispatcher.trouble is None:
                await asyncio.wait({running}, timeout=0.001)
        assert dispatcher.trouble == "DNS does not answer the gateway"


async def test_outage_begins_with_its_first_failure_even_after_a_long_idle_time(tmp_path: Path) -> None:
    """A judge that was scaled to zero meanwhile, or whose run's model loads for long, has its patience before it."""
    now = [0.0]

    def away_later(_request: judge_pb2.JudgeRequest) -> judge_pb2.StreamFailure:
        now[0] = max(now[0], 1000.0)  # the first answers come long after the start
        return unavailable()

    judge = MemoryJudge(script=away_later)
    policy = RetryPolicy(attempts=2, patience=600.0, first_delay=0.001, max_delay=0.002)
    async with dispatching(tmp_path, [judge], problems=1, policy=policy, clock=lambda: now[0]) as (
        item_states,
        _,
        one,
        run,
    ):
        async with asyncio.timeout(10):
            while len(judge.asked) < 8:
                now[0] += 0.001
                await asyncio.wait({run}, timeout=0.001)
        assert item_states.count(ItemState.NOT_JUDGED) == 0
        assert one.trouble is None
        now[0] += 600.0
        async with asyncio.timeout(10):
            while item_states.unjudged:
                now[0] += 0.001
                await asyncio.wait({run}, timeout=0.001)
        assert item_states.count(ItemState.NOT_JUDGED) == 1


async def test_item_is_not_judged_if_the_judge_keeps_asking_for_its_tests(tmp_path: Path) -> None:
    judge = MemoryJudge(script=lambda _request: judge_pb2.StreamFailure(code=5, message="send them"))
    policy = RetryPolicy(attempts=2, patience=0.0, first_delay=0.001, max_delay=0.002)
    async with dispatching(tmp_path, [judge], problems=1, suite=b"x" * 32, policy=policy) as (
        item_states,
        _,
        _,
        running,
    ):
        await judged(item_states, running)
        assert item_states.count(ItemState.NOT_JUDGED) == 1


async def test_work_is_shared_among_judges_within_the_bound(tmp_path: Path) -> None:
    silent = MemoryJudge(script=lambda _request: None, address="silent")
    quick = MemoryJudge(address="quick")
    async with dispatching(tmp_path, [silent, quick], problems=200) as (item_states, _, dispatcher, running):
        async with asyncio.timeout(10):
            while item_states.count(ItemState.ACCEPTED) < 198:
                await asyncio.wait({running}, timeout=0.01)
        assert (len(silent.asked), len(quick.asked), dispatcher.in_flight) == (2, 198, 2)


async def test_broken_stream_is_reopened_and_resends_only_unanswered_requests(tmp_path: Path) -> None:
    judge = MemoryJudge(
        script=lambda request: None if request.submission.text == "p3 accept" else make_scripted_verdict(request)
    )
    async with dispatching(tmp_path, [judge], problems=10) as (item_states, _, dispatcher, running):
        async with asyncio.timeout(10):
            while item_states.count(ItemState.ACCEPTED) < 9:
                await asyncio.wait({running}, timeout=0.01)
        judge.script = make_scripted_verdict
        judge.refuse = [JudgeLostError("still down"), JudgeLostError("still down")]
        judge.streams[0].broken.set()
        await judged(item_states, running)
        assert dispatcher.trouble is None
    texts = [request.submission.text for request in judge.asked]
    assert (len(texts), texts.count("p3 accept"), len(judge.streams)) == (11, 2, 2)


async def test_unreachable_judge_is_reported_and_all_items_are_judged_later(tmp_path: Path) -> None:
    judge = MemoryJudge(refuse=[JudgeLostError("connection refused")] * 3)
    async with dispatching(tmp_path, [judge], problems=3) as (item_states, _, dispatcher, running):
        async with asyncio.timeout(10):
            while dispatcher.trouble is None:
                await asyncio.wait({running}, timeout=0.005)
        assert dispatcher.trouble == "connection refused"
        await judged(item_states, running)
        assert item_states.count(ItemState.ACCEPTED) == 3


async def test_a_judge_that_refuses_us_ends_the_dispatch(tmp_path: Path) -> None:
    judge = MemoryJudge(refuse=[JudgeRefusedError("UNAUTHENTICATED: send the token")])
    async with dispatching(tmp_path, [judge]) as (_, _, _, running):
        with pytest.raises(JudgeRefusedError, match="send the token"):
            await asyncio.wait_for(running, 10)


async def test_item_that_always_fails_is_not_judged_and_the_others_are_judged(tmp_path: Path) -> None:
    judge = MemoryJudge(
        script=lambda r: unavailable() if r.submission.text == "p0 accept" else make_scripted_verdict(r)
    )
    policy = RetryPolicy(attempts=3, patience=0.05, first_delay=0.001, max_delay=0.002)
    async with dispatching(tmp_path, [judge], policy=policy) as (item_states, ledger, _, running):
        await judged(item_states, running)
        assert (item_states.count(ItemState.ACCEPTED), item_states.state(0)) == (19, ItemState.NOT_JUDGED)
        (stored,) = [s.verdict for s in ledger.samples() if s.verdict is not None and not s.verdict.judged]
    assert stored.reason == "UNAVAILABLE: no sandbox answered"
    assert judge_pb2.Verdict.FromString(stored.verdict).final_status == judge_pb2.FINAL_STATUS_API_ERROR


async def test_busy_judge_is_retried_until_every_item_is_judged(tmp_path: Path) -> None:
    chance = random.Random(5)

    def often_busy(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict | judge_pb2.StreamFailure:
        return (
            judge_pb2.StreamFailure(code=8, retry_after_ms=1)
            if chance.random() < 0.8
            else make_scripted_verdict(request)
        )

    async with dispatching(tmp_path, [MemoryJudge(script=often_busy)]) as (item_states, _, _, running):
        await judged(item_states, running)
        assert item_states.count(ItemState.ACCEPTED) == 20


async def test_old_stream_is_drained_and_replaced_without_repeated_requests(tmp_path: Path) -> None:
    judge = MemoryJudge()
    async with dispatching(tmp_path, [judge], problems=300, stream_age=0.01) as (item_states, _, _, running):
        await judged(item_states, running)
        assert item_states.count(ItemState.ACCEPTED) == 300
    assert len(judge.streams) > 1
    assert len(judge.asked) == 300


async def test_verdicts_wait_for_room_on_the_disk_and_the_judge_is_not_asked_for_more(tmp_path: Path) -> None:
    big = judge_pb2.Verdict(judged=True, accepted=True, final_status=judge_pb2.FINAL_STATUS_SUCCESS, code="x" * 50_000)
    judge = MemoryJudge(script=lambda _request: big)
    async with dispatching(tmp_path, [judge], problems=200, max_pages=120) as (
        item_states,
        ledger,
        dispatcher,
        running,
    ):
        async with asyncio.timeout(10):
            while dispatcher.storage_trouble is None:
                await asyncio.wait({running}, timeout=0.01)
        asked = len(judge.asked)
        assert asked < 50
        assert item_states.count(ItemState.ACCEPTED) == len(list(ledger.reader.verdict_rows()))
        assert "full" in dispatcher.storage_trouble


async def test_stream_worker_survives_a_call_that_grpc_cancels(tmp_path: Path) -> None:
    """gRPC raises CancelledError in a call that it ends itself, and a task group passes over a child that raises it."""
    cancelled = 0

    class Cancelling(MemoryJudge):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[MemoryStream]:
            nonlocal cancelled
            async with super().open() as stream:
                if cancelled < 2:
                    cancelled += 1

                    async def fail(*_: object) -> None:
                        raise asyncio.CancelledError

                    setattr(stream, "receive" if cancelled == 1 else "send", fail)
                yield stream

    async with dispatching(tmp_path, [Cancelling()], in_flight=2) as (item_states, _, _, running):
        await judged(item_states, running)
        assert (cancelled, item_states.count(ItemState.ACCEPTED)) == (2, 20)
