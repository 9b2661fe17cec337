"""The supervisor obeys one generator: the last to attach. Starting replicas needs Ray: see integration."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from builders.generator.rollout_order import rollout_order

from evalrun_generator.rollout.engine import engine_plan
from evalrun_generator.rollout.supervisor import SupersededError, Supervisor

PLAN = engine_plan(rollout_order({}), {})


@pytest.mark.parametrize(
    "ask",
    [
        lambda supervisor: supervisor.starts("first"),
        lambda supervisor: supervisor.start("first", 0, "suffix", "node"),
        lambda supervisor: supervisor.end("first", "suffix"),
        lambda supervisor: supervisor.end_all("first"),
    ],
    ids=["starts", "start", "end", "end_all"],
)
async def test_a_generator_that_was_superseded_is_refused(ask: Callable[[Supervisor], Awaitable[object]]) -> None:
    supervisor = Supervisor(PLAN)
    await supervisor.attach("first")
    await supervisor.attach("second")
    with pytest.raises(SupersededError):
        await ask(supervisor)


async def test_last_attached_driver_is_obeyed_and_gets_the_same_key() -> None:
    supervisor = Supervisor(PLAN)
    first = await supervisor.attach("first")
    assert await supervisor.attach("second") == first == (PLAN.digest, first[1])
    assert len(first[1]) >= 32
    assert await supervisor.end_all("second") == ()


async def test_each_keeper_draws_a_key_of_its_own() -> None:
    assert (await Supervisor(PLAN).attach("a"))[1] != (await Supervisor(PLAN).attach("a"))[1]


async def test_replicas_that_no_driver_asks_for_any_more_end_by_themselves() -> None:
    clock, left = [0.0], asyncio.Event()
    supervisor = Supervisor(PLAN, 0.01, now=lambda: clock[0], leave=left.set)
    await supervisor.attach("killed")
    await asyncio.sleep(0.02)  # the clock stands: nobody has been silent for long
    assert not left.is_set()
    clock[0] = 1.0
    await supervisor.attach("its successor")
    clock[0] = 1.005
    await supervisor.end_all("its successor")
    await asyncio.sleep(0.02)
    assert not left.is_set()
    clock[0] = 2.0
    await left.wait()


async def test_replicas_wait_for_the_next_driver_by_default() -> None:
    left = asyncio.Event()
    supervisor = Supervisor(PLAN, now=itertools.count(0.0, 1e6).__next__, leave=left.set)
    await supervisor.attach("killed")
    await asyncio.sleep(0)
    assert await supervisor.attach("its successor")
    assert not left.is_set()


async def test_kept_replicas_serve_one_driver_after_another_the_lowest_place_first() -> None:
    supervisor = Supervisor(PLAN)
    assert await supervisor.take_turn("first", (1, ""))
    assert not await supervisor.take_turn("third", (3, ""))
    assert not await supervisor.take_turn("second", (2, ""))
    assert await supervisor.end_turn("first") == ()
    assert not await supervisor.take_turn("third", (3, ""))
    assert await supervisor.take_turn("second", (2, ""))
    with pytest.raises(SupersededError):
        await supervisor.starts("first")
    with pytest.raises(SupersededError):
        await supervisor.end_turn("third")
    await supervisor.end_turn("second")
    assert await supervisor.take_turn("third", (3, ""))


async def test_weights_are_replaced_only_where_a_replica_serves() -> None:
    supervisor = Supervisor(PLAN)
    assert await supervisor.take_turn("only", (0, ""))
    assert await supervisor.replace_weights("only", PLAN, {}) == "no replica serves"
    shape, weights, key = await supervisor.weights("only")
    assert (shape, weights, len(key)) == (PLAN.shape, "", 32)
