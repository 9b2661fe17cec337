import asyncio
import random
from collections.abc import Sequence

import pytest
from builders.generator.work import work_item, work_items

from evalrun_generator.endpoints.balancer import BalancerLimits
from evalrun_generator.endpoints.completion_client import RequestPolicy
from evalrun_generator.endpoints.endpoint import Timed
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.endpoints.fake_endpoint import FakeEndpoint, answer
from evalrun_generator.endpoints.openai_api import CompletionAnswer
from evalrun_generator.endpoints.retry import (
    Backoff,
    Blame,
    RequestFailure,
    RetryAction,
    classify_broken_off,
    unreachable,
)
from evalrun_generator.ledger.fake_ledger import FakeLedger
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.token_counts import TokenCounter
from evalrun_generator.work_loop import WorkLoop
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_runtime.exits import BadInputError


def loop_over(
    fake: FakeLedger,
    endpoints: Sequence[FakeEndpoint],
    *,
    slots: int = 4,
    attempts: int = 3,
    outage_seconds: float = 30.0,
    tokens: TokenCounter | None = None,
    ask_seconds: float = 5.0,
) -> WorkLoop:
    rng = random.Random(0)
    fleet = EndpointFleet(BalancerLimits(initial_ejection_seconds=0.001, max_ejection_seconds=0.01), rng)
    for endpoint in endpoints:
        fleet.join(endpoint, slots)
    plan = RequestPolicy(
        model="model",
        attempts=attempts,
        backoff=Backoff(0.0001, 0.001),
        deadline_for=float,
        outage_seconds=outage_seconds,
        batch_size=8,
        batch_delay_seconds=0.001,
        tokens=tokens or TokenCounter(None),
    )
    return WorkLoop(fake, fleet, plan, rng, ask_seconds=ask_seconds)


def prompt_of(body: dict[str, object]) -> str:
    messages = body["messages"]
    return str(messages[0]["content"]) if isinstance(messages, list) else ""


async def slowly(outcome: Timed | RequestFailure) -> Timed | RequestFailure:
    await asyncio.sleep(0.001)
    return outcome


async def test_every_item_is_answered_with_all_slots_used_and_none_exceeded() -> None:
    endpoints = [FakeEndpoint(name, lambda _count, _body: slowly(answer())) for name in "ab"]
    fake = FakeLedger(work_items(60))
    await loop_over(fake, endpoints, slots=5).run()
    assert set(fake.completions) == set(fake.items)
    assert [endpoint.max_in_flight for endpoint in endpoints] == [5, 5]
    assert max(fake.work_calls) <= 11  # ten in flight, one ahead
    assert fake.duplicates == 0


async def test_an_empty_ledger_ends_at_once() -> None:
    await loop_over(FakeLedger([]), [FakeEndpoint("a")]).run()


async def test_a_run_whose_gates_have_decided_ends_with_requests_in_flight() -> None:
    """Every slot is busy with a long answer: the ledger is asked now and then whether it is still needed."""

    async def never(_count: int) -> Timed | RequestFailure:
        await asyncio.Event().wait()
        return answer()

    fake, endpoint = FakeLedger(work_items(20)), FakeEndpoint("a", lambda count, _body: never(count))
    loop = loop_over(fake, [endpoint], ask_seconds=0.01)
    running = asyncio.create_task(loop.run())
    while endpoint.in_flight < 4:
        await fake.changed.wait()
        await asyncio.sleep(0)
    fake.cancelled = True
    await asyncio.wait_for(running, 5)
    assert (endpoint.in_flight, len(fake.completions)) == (0, 0)


async def test_requests_in_flight_stay_within_the_limit_of_the_ledger() -> None:
    endpoints = [FakeEndpoint(name, lambda _count, _body: slowly(answer())) for name in "ab"]
    fake = FakeLedger(work_items(40))
    fake.max_in_flight = 3
    await loop_over(fake, endpoints, slots=5).run()
    assert set(fake.completions) == set(fake.items)
    assert sum(endpoint.max_in_flight for endpoint in endpoints) <= 4  # never more than three at a time
    assert max(fake.work_calls[1:]) <= 4


async def test_paused_run_finishes_requests_in_flight_and_continues_after_the_pause() -> None:
    released = asyncio.Event()

    async def script() -> Timed | RequestFailure:
        await released.wait()
        return answer()

    fake, endpoint = FakeLedger(work_items(20)), FakeEndpoint("a", lambda _count, _body: script())
    loop = loop_over(fake, [endpoint], ask_seconds=0.01)
    running = asyncio.create_task(loop.run())
    while endpoint.in_flight < 4:
        await fake.changed.wait()
        await asyncio.sleep(0)
    fake.max_in_flight = 0
    await next_call(fake)  # from here on it knows
    released.set()
    while len(fake.completions) < 4:
        await fake.changed.wait()
        await asyncio.sleep(0)
    for _ in range(3):
        await next_call(fake)
    assert (len(endpoint.requests), len(fake.completions)) == (4, 4)
    fake.max_in_flight = None
    await asyncio.wait_for(running, 10)
    assert set(fake.completions) == set(fake.items)
    assert (fake.duplicates, endpoint.max_in_flight) == (0, 4)


async def next_call(fake: FakeLedger) -> None:
    """Wait until the loop has asked for work once more, and read the answer."""
    before = len(fake.work_calls)
    while len(fake.work_calls) == before:
        fake.changed.clear()
        await fake.changed.wait()
    await asyncio.sleep(0)


async def test_an_endpoint_that_joins_late_is_filled_at_once() -> None:
    gate = asyncio.Event()

    async def script(count: int) -> Timed | RequestFailure:
        if count == 3:
            gate.set()
        await gate.wait()  # nothing is answered until four are in flight
        return answer()

    rng = random.Random(0)
    fleet = EndpointFleet(BalancerLimits(), rng)
    fake = FakeLedger(work_items(12))
    plan = RequestPolicy("model", 3, Backoff(0.0001, 0.001), float, 30.0, 8, 0.001)
    running = asyncio.create_task(WorkLoop(fake, fleet, plan, rng).run())
    await fake.changed.wait()
    fleet.join(FakeEndpoint("late", lambda count, _body: script(count)), 4)
    await asyncio.wait_for(running, 5)
    assert fake.remaining == 0


async def test_completion_is_stored_with_its_metadata() -> None:
    endpoint = FakeEndpoint("a", lambda _count, _body: answer("text", finish_reason="length", model="served"))
    fake = FakeLedger([work_item("p", sample=3)])
    await loop_over(fake, [endpoint]).run()
    done = fake.completions["ds", "p", 3, 0, 0]
    assert (done.text, done.finish_reason, done.model, done.replica, done.attempts) == (
        "text",
        "length",
        "served",
        "a",
        1,
    )
    assert (done.prompt_tokens, done.output_tokens) == (3, 5)


UNCOUNTED = Timed(CompletionAnswer("12345678", "stop", None, None, "m"), 0.0, 0.0)


async def test_a_server_that_does_not_count_leaves_the_counts_unset() -> None:
    fake = FakeLedger([work_item()])
    await loop_over(fake, [FakeEndpoint("a", lambda _count, _body: UNCOUNTED)]).run()
    done = next(iter(fake.completions.values()))
    assert not done.HasField("prompt_tokens")
    assert not done.HasField("output_tokens")


async def test_the_models_tokenizer_counts_where_the_server_does_not() -> None:
    fake = FakeLedger([work_item()])
    counter = TokenCounter("some/model", lambda _place: len)
    await loop_over(fake, [FakeEndpoint("a", lambda _count, _body: UNCOUNTED)], tokens=counter).run()
    assert next(iter(fake.completions.values())).output_tokens == 8


async def test_a_failed_item_is_asked_for_elsewhere_with_the_same_bytes() -> None:
    bad = FakeEndpoint("bad", lambda _count, _body: classify_broken_off("dropped"))
    good = FakeEndpoint("good")
    fake = FakeLedger([work_item(f"p/{index}", seed=index) for index in range(20)])
    await loop_over(fake, [bad, good]).run()
    assert {done.replica for done in fake.completions.values()} == {"good"}
    assert bad.requests
    assert all(request in good.requests for request in bad.requests)


async def test_refused_item_does_not_stop_the_others() -> None:
    refusal = RequestFailure(RetryAction.REJECT, Blame.NONE, counted=True, reason="HTTP 400: the prompt is too long")
    endpoint = FakeEndpoint("a", lambda _count, body: refusal if prompt_of(body) == "solve p/7" else answer())
    fake = FakeLedger(work_items(20))
    with pytest.raises(GenerationStoppedError, match=r"ds p/7 sample 0: a: HTTP 400: the prompt is too long") as raised:
        await loop_over(fake, [endpoint]).run()
    assert "resume once the server accepts it" in str(raised.value)
    assert fake.remaining == 1
    assert sum(prompt_of(request) == "solve p/7" for request in endpoint.requests) == 1


@pytest.mark.parametrize("items", [3, 40])
async def test_a_server_that_refuses_every_request_ends_the_run_at_once_as_bad_input(items: int) -> None:
    refusal = RequestFailure(RetryAction.REJECT, Blame.NONE, counted=True, reason="HTTP 400: max_tokens is too large")
    endpoint = FakeEndpoint("a", lambda _count, _body: slowly(refusal))
    with pytest.raises(BadInputError, match=r"endpoint a: HTTP 400: max_tokens is too large\. The first \d+ requests"):
        await loop_over(FakeLedger(work_items(items)), [endpoint], slots=4).run()
    assert len(endpoint.requests) <= 20  # how many are sent until the loop sees the refusals depends on the machine


async def test_refusals_that_come_before_the_first_answer_do_not_end_the_run() -> None:
    refusal = RequestFailure(RetryAction.REJECT, Blame.NONE, counted=True, reason="HTTP 400: the prompt is too long")
    refused = asyncio.Event()

    async def script(count: int) -> Timed | RequestFailure:
        if count < 3:
            return refusal
        refused.set()
        await refused.wait()
        return answer()

    fake = FakeLedger(work_items(20))
    with pytest.raises(GenerationStoppedError, match="resume once the server accepts it"):
        await loop_over(fake, [FakeEndpoint("a", lambda count, _body: script(count))], slots=4).run()
    assert fake.remaining == 3


async def test_an_item_that_always_fails_is_given_up_while_others_are_answered() -> None:
    poison = "solve p/3"
    endpoints = [
        FakeEndpoint(
            name, lambda _count, body: slowly(classify_broken_off("died") if prompt_of(body) == poison else answer())
        )
        for name in "ab"
    ]
    fake = FakeLedger(work_items(200))
    with pytest.raises(GenerationStoppedError, match=r"ds p/3 sample 0: 3 attempts failed, the last at .: died"):
        await loop_over(fake, endpoints).run()
    assert fake.remaining == 1
    assert sum(prompt_of(request) == poison for endpoint in endpoints for request in endpoint.requests) == 3


async def test_an_outage_fails_no_item_and_is_waited_out() -> None:
    def script(count: int, _body: dict[str, object]) -> Timed | RequestFailure:
        return classify_broken_off("HTTP 500: engine is dead") if 10 <= count < 60 else answer()

    fake = FakeLedger(work_items(40))
    await loop_over(fake, [FakeEndpoint("a", script)]).run()
    assert fake.remaining == 0


async def test_an_outage_that_lasts_is_a_resumable_stop() -> None:
    endpoint = FakeEndpoint("a", lambda count, _body: answer() if count < 10 else unreachable("Connection refused"))
    fake = FakeLedger(work_items(40))
    with pytest.raises(GenerationStoppedError, match=r"no endpoint has answered for .* a: Connection refused"):
        await loop_over(fake, [endpoint], outage_seconds=0.05).run()
    assert len(fake.completions) == 10


async def test_failure_that_aborts_ends_the_run_at_once_and_keeps_the_answers() -> None:
    wrong_key = RequestFailure(RetryAction.ABORT, Blame.NONE, counted=True, reason="HTTP 401: wrong key")
    endpoint = FakeEndpoint("a", lambda count, _body: answer() if count < 6 else wrong_key)
    fake = FakeLedger(work_items(40))
    with pytest.raises(BadInputError, match="endpoint a: HTTP 401: wrong key"):
        await loop_over(fake, [endpoint]).run()
    assert len(fake.completions) == 6


async def test_drain_lets_requests_in_flight_end_and_leases_no_more() -> None:
    gate, full = asyncio.Event(), asyncio.Event()

    async def script(count: int) -> Timed | RequestFailure:
        if count == 3:
            full.set()
        await gate.wait()
        return answer()

    endpoint = FakeEndpoint("a", lambda count, _body: script(count))
    fake = FakeLedger(work_items(20))
    work = loop_over(fake, [endpoint])
    running = asyncio.create_task(work.run())
    await full.wait()
    draining = asyncio.create_task(work.drain(5))
    await asyncio.sleep(0)
    gate.set()
    await draining
    assert len(fake.completions) == 4
    assert len(endpoint.requests) == 4
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_leases_lost_on_the_way_are_taken_again() -> None:
    class Forgetful(FakeLedger):
        async def get_work(self, max_items: int, *, fresh: bool, worker_id: str = "worker") -> ledger.GetWorkResponse:
            response = await super().get_work(max_items, fresh=fresh, worker_id=worker_id)
            if len(self.work_calls) == 2:
                del response.items[:]  # leased, and never heard of
            return response

    fake = Forgetful(work_items(30), max_items_per_call=8)
    await loop_over(fake, [FakeEndpoint("a")]).run()
    assert fake.remaining == 0


async def test_items_handed_out_twice_are_asked_for_once() -> None:
    class Restarted(FakeLedger):
        async def get_work(self, max_items: int, *, fresh: bool, worker_id: str = "worker") -> ledger.GetWorkResponse:
            self.leases.clear()
            return await super().get_work(max_items, fresh=fresh, worker_id=worker_id)

    endpoint = FakeEndpoint("a", lambda _count, _body: slowly(answer()))
    fake = Restarted(work_items(40))
    await loop_over(fake, [endpoint]).run()
    assert len(endpoint.requests) == 40


async def test_completion_with_an_unknown_key_does_not_block_its_batch() -> None:
    class OtherRun(FakeLedger):
        async def get_work(self, max_items: int, *, fresh: bool, worker_id: str = "worker") -> ledger.GetWorkResponse:
            response = await super().get_work(max_items, fresh=fresh, worker_id=worker_id)
            if len(self.work_calls) == 1:
                response.items.append(work_item("of another run"))
            return response

    fake = OtherRun(work_items(3))
    await loop_over(fake, [FakeEndpoint("a")]).run()
    assert fake.remaining == 0


def items_with_log_probs(count: int) -> list[ledger.WorkItem]:
    items = work_items(count)
    for item in items:
        item.sampling.log_probs = True
    return items


async def test_endpoint_without_log_probs_gives_one_warning() -> None:
    def told(_count: int, _body: dict[str, object]) -> Timed:
        return Timed(CompletionAnswer("answer", "stop", 3, 2, "model", log_probs=(-0.5, -0.25)), 0.0, 0.0)

    fake = FakeLedger(items_with_log_probs(40))
    work = loop_over(fake, [FakeEndpoint("mute"), FakeEndpoint("telling", told)])
    await work.run()
    assert len(fake.completions) == 40
    [warning] = work.warnings
    assert "endpoint mute gives no log-probabilities" in warning
    assert {tuple(each.log_probs) for each in fake.completions.values()} == {(), (-0.5, -0.25)}


async def test_endpoint_that_refuses_log_probs_ends_the_run_with_the_remedy() -> None:
    refusal = RequestFailure(RetryAction.REJECT, Blame.NONE, counted=True, reason="HTTP 400: logprobs is not supported")
    endpoint = FakeEndpoint("a", lambda _count, _body: slowly(refusal))
    with pytest.raises(BadInputError, match=r"not supported.*remove protocol\.calculateLogProbs"):
        await loop_over(FakeLedger(items_with_log_probs(20)), [endpoint]).run()
    with pytest.raises(BadInputError, match=r"or the server$"):
        await loop_over(FakeLedger(work_items(20)), [endpoint]).run()
