import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from builders.generator.work import work_items

from evalrun_generator.app import work_and_report
from evalrun_generator.endpoint_reports import replicas
from evalrun_generator.endpoints.balancer import BalancerLimits
from evalrun_generator.endpoints.completion_client import OpenRequest, RequestPolicy
from evalrun_generator.endpoints.endpoint_admission import EndpointAdmission
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.endpoints.fake_endpoint import FakeEndpoint
from evalrun_generator.endpoints.retry import Backoff, Blame, RequestFailure, RetryAction, from_status, unreachable
from evalrun_generator.ledger.fake_ledger import FakeLedger
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.token_counts import TokenCounter
from evalrun_generator.work_loop import WorkLoop
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_runtime.exits import BadInputError


def admission(*endpoints: FakeEndpoint, verify: bool = True) -> tuple[EndpointAdmission, EndpointFleet]:
    rng = random.Random(0)
    fleet = EndpointFleet(BalancerLimits(), rng)
    return EndpointAdmission(fleet, endpoints, model="model", slots=[4] * len(endpoints), verify=verify, rng=rng), fleet


class UnreportedLedger(FakeLedger):
    """A ledger to which no report can be made, by a mistake of ours."""

    async def report(self, replicas: Sequence[ledger.Replica], warnings: Sequence[str] = ()) -> None:
        raise TypeError("half a character")


async def test_reports_that_end_unexpectedly_end_the_work_resumably() -> None:
    gate, fleet = admission(FakeEndpoint("a"))
    policy = RequestPolicy(
        model="model", attempts=1, backoff=Backoff(0.001, 0.001), deadline_for=float, outage_seconds=60,
        batch_size=1, batch_delay_seconds=0.001, tokens=TokenCounter(None),
    )  # fmt: skip
    incomplete = UnreportedLedger(work_items(1))
    work = WorkLoop(incomplete, fleet, policy, random.Random(0))
    with pytest.raises(GenerationStoppedError, match=r"reports.*TypeError: half a character.*run again"):
        await work_and_report(incomplete, gate, fleet, work, 60)


async def test_endpoints_that_serve_the_model_join() -> None:
    gate, fleet = admission(FakeEndpoint("a"), FakeEndpoint("b", models=["other", "model"]))
    await gate.run(1)
    assert [state.name for state in fleet.states] == ["a", "b"]
    assert gate.models["b"] == ["other", "model"]


async def test_endpoint_with_another_model_ends_the_run_and_names_the_served_models() -> None:
    gate, _ = admission(FakeEndpoint("a", models=["x/y", "z"]))
    with pytest.raises(BadInputError, match=r"endpoint a does not serve model 'model'; it serves: x/y, z"):
        await gate.run(1)


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_without_a_list_of_models_is_used_with_a_warning(status: int) -> None:
    missing = from_status(status, {}, b'{"detail": "Not Found"}', datetime.now(UTC))
    gate, fleet = admission(FakeEndpoint("a", models=missing))
    await gate.run(1)
    assert [state.name for state in fleet.states] == ["a"]
    [warning] = gate.warnings
    assert f"endpoint a does not list its models (HTTP {status}" in warning
    assert "using it without checking that it serves model" in warning


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_refuses_the_key_ends_the_run_at_once(status: int) -> None:
    gate, _ = admission(FakeEndpoint("a", models=from_status(status, {}, b"", datetime.now(UTC))))
    said = f"endpoint a refuses to list its models: HTTP {status}.*EVALRUN_GENERATOR_API_KEY or OPENAI_API_KEY"
    with pytest.raises(BadInputError, match=said):
        await gate.run(60)


async def test_error_of_an_endpoint_that_is_not_ready_is_reported_at_once() -> None:
    gate, _ = admission(FakeEndpoint("a", models=unreachable("Connection refused")))
    told = asyncio.Event()
    gate.on_trouble.append(told.set)
    running = asyncio.create_task(gate.run(60))
    await told.wait()
    assert gate.errors == {"a": "Connection refused"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_wrong_key_ends_the_run() -> None:
    refused = RequestFailure(RetryAction.ABORT, Blame.NONE, counted=True, reason="HTTP 401: wrong key")
    gate, _ = admission(FakeEndpoint("a", models=refused))
    with pytest.raises(BadInputError, match="endpoint a refuses to list its models: HTTP 401: wrong key"):
        await gate.run(1)


async def test_no_reachable_endpoint_within_the_time_is_bad_input() -> None:
    gate, _ = admission(FakeEndpoint("http://a", models=unreachable("Connection refused")))
    with pytest.raises(BadInputError, match="endpoint http://a unreachable: Connection refused"):
        await gate.run(0.01)


async def test_run_starts_with_the_first_endpoint_and_reports_missing_ones() -> None:
    gate, fleet = admission(FakeEndpoint("a"), FakeEndpoint("b", models=unreachable("Connection refused")))
    joined = asyncio.Event()
    fleet.on_join.append(joined.set)
    running = asyncio.create_task(gate.run(1))
    await joined.wait()
    report = {replica.name: replica for replica in replicas(gate, fleet, {})}
    assert (report["a"].up, list(report["a"].models)) == (True, ["model"])
    assert (report["b"].up, report["b"].error) == (False, "Connection refused")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_servers_without_a_list_of_models_can_be_taken_on_trust() -> None:
    gate, fleet = admission(FakeEndpoint("a", models=unreachable("never asked")), verify=False)
    await gate.run(1)
    assert len(fleet.states) == 1


async def test_each_endpoint_has_its_configured_slots_and_reports_its_version() -> None:
    rng = random.Random(0)
    fleet = EndpointFleet(BalancerLimits(), rng)
    endpoints = [FakeEndpoint("a", version="0.11.0"), FakeEndpoint("b")]
    gate = EndpointAdmission(fleet, endpoints, model="model", slots=[3, 5], verify=True, rng=rng)
    await gate.run(1)
    assert {state.name: state.slots for state in fleet.states} == {"a": 3, "b": 5}
    assert [dict(replica.engine) for replica in replicas(gate, fleet, {})] == [{"engine_version": "0.11.0"}, {}]


async def test_oldest_open_request_is_reported_with_its_limit() -> None:
    gate, fleet = admission(FakeEndpoint("a"), FakeEndpoint("b"))
    await gate.run(1)
    first, second = replicas(gate, fleet, {"a": OpenRequest("a", 1000.0, 410.0)})
    assert (first.oldest_request_at, first.oldest_request_limit_seconds) == (1000.0, 410.0)
    assert (second.oldest_request_at, second.oldest_request_limit_seconds) == (0.0, 0.0)
