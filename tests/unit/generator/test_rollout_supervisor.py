"""The keeper of the replicas obeys one generator: the last to attach. (What it starts needs Ray: see integration.)"""

from collections.abc import Awaitable, Callable

import pytest

from evalrun_generator.rollout.engine import engine_plan
from evalrun_generator.rollout.order import RunOrder
from evalrun_generator.rollout.supervisor import SupersededError, Supervisor

PLAN = engine_plan(RunOrder.model_validate({"run": "r", "spec": {"model": {"path": "m"}, "rollout": {}}}), {})


@pytest.mark.parametrize(
    "ask",
    [
        lambda keeper: keeper.starts("first"),
        lambda keeper: keeper.start("first", 0, "suffix", "node"),
        lambda keeper: keeper.end("first", "suffix"),
        lambda keeper: keeper.end_all("first"),
    ],
    ids=["starts", "start", "end", "end_all"],
)
async def test_a_generator_that_was_superseded_is_refused(ask: Callable[[Supervisor], Awaitable[object]]) -> None:
    keeper = Supervisor(PLAN)
    await keeper.attach("first")
    await keeper.attach("second")
    with pytest.raises(SupersededError):
        await ask(keeper)


async def test_the_last_to_attach_is_obeyed_and_gets_the_same_key() -> None:
    keeper = Supervisor(PLAN)
    first = await keeper.attach("first")
    assert await keeper.attach("second") == first == (PLAN.digest, first[1])
    assert len(first[1]) >= 32
    assert await keeper.end_all("second") == ()


async def test_each_keeper_draws_a_key_of_its_own() -> None:
    assert (await Supervisor(PLAN).attach("a"))[1] != (await Supervisor(PLAN).attach("a"))[1]
