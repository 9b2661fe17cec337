import asyncio
import random

import pytest

from evalrun_generator.admission import Admission
from evalrun_generator.balancer import Limits
from evalrun_generator.fake_endpoint import FakeEndpoint
from evalrun_generator.fleet import Fleet
from evalrun_generator.reporting import replicas
from evalrun_generator.retry import Action, Blame, Failure, unreachable
from evalrun_runtime.exits import BadInputError


def admission(*endpoints: FakeEndpoint, verify: bool = True) -> tuple[Admission, Fleet]:
    rng = random.Random(0)
    fleet = Fleet(Limits(), rng)
    return Admission(fleet, endpoints, model="model", slots=4, verify=verify, rng=rng), fleet


async def test_endpoints_that_serve_the_model_join() -> None:
    gate, fleet = admission(FakeEndpoint("a"), FakeEndpoint("b", models=["other", "model"]))
    await gate.run(1)
    assert [state.name for state in fleet.states] == ["a", "b"]
    assert gate.models["b"] == ["other", "model"]


async def test_another_model_ends_the_run_and_names_what_is_served() -> None:
    gate, _ = admission(FakeEndpoint("a", models=["x/y", "z"]))
    with pytest.raises(BadInputError, match=r"endpoint a does not serve model 'model'; it serves: x/y, z"):
        await gate.run(1)


async def test_a_wrong_key_ends_the_run() -> None:
    refused = Failure(Action.ABORT, Blame.NONE, counted=True, reason="HTTP 401: wrong key")
    gate, _ = admission(FakeEndpoint("a", models=refused))
    with pytest.raises(BadInputError, match="endpoint a refuses to list its models: HTTP 401: wrong key"):
        await gate.run(1)


async def test_nobody_there_within_the_time() -> None:
    gate, _ = admission(FakeEndpoint("http://a", models=unreachable("Connection refused")))
    with pytest.raises(BadInputError, match="endpoint http://a unreachable: Connection refused"):
        await gate.run(0.01)


async def test_the_run_begins_with_the_first_and_says_who_is_missing() -> None:
    gate, fleet = admission(FakeEndpoint("a"), FakeEndpoint("b", models=unreachable("Connection refused")))
    joined = asyncio.Event()
    fleet.on_join.append(joined.set)
    running = asyncio.create_task(gate.run(1))
    await joined.wait()
    report = {replica.name: replica for replica in replicas(gate, fleet)}
    assert (report["a"].up, list(report["a"].models)) == (True, ["model"])
    assert (report["b"].up, report["b"].error) == (False, "Connection refused")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_servers_without_a_list_of_models_can_be_taken_on_trust() -> None:
    gate, fleet = admission(FakeEndpoint("a", models=unreachable("never asked")), verify=False)
    await gate.run(1)
    assert len(fleet.states) == 1
