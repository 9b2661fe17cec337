import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from builders.generator.work import Processes, ledger_server, processes, until_in_flight, work_item, work_items
from builders.tls_directories import TlsDirectory, authority


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path) as running:
        yield running


async def test_every_item_is_answered_and_the_generator_ends(started: Processes) -> None:
    endpoint = await started.recorded("--echo-tokens", "7")
    items = [*work_items(5), work_item("completion", chat=False)]
    async with ledger_server(items) as server:
        generator = await started.generator(server, [f"{endpoint.address}/v1/"])
        assert await generator.wait() == 0, generator.errors
        assert set(server.fake.completions) == set(server.fake.items)
        done = next(iter(server.fake.completions.values()))
        assert done.output_tokens == 7
        assert done.finish_reason == "stop"
        assert done.model == "recorded"
        assert done.replica == endpoint.address
        assert done.attempts == 1
        assert server.fake.reports[-1][0].up
        assert list(server.fake.reports[-1][0].models) == ["recorded"]


async def test_a_ledger_that_lacks_nothing_needs_no_endpoint(started: Processes) -> None:
    async with ledger_server([]) as server:
        generator = await started.generator(server, ["http://127.0.0.1:9"])
        assert await generator.wait() == 0, generator.errors


async def test_killed_endpoint_loses_no_answer_beside_another_endpoint(started: Processes) -> None:
    endpoints = [await started.recorded("--echo-tokens", "3", "--latency-seconds", "0.02") for _ in range(2)]
    async with ledger_server(work_items(600)) as server:
        addresses = [endpoint.address for endpoint in endpoints]
        generator = await started.generator(server, addresses, "--concurrency", "16")
        await server.until_stored(100)
        await endpoints[0].kill()
        assert await generator.wait() == 0, generator.errors
        assert set(server.fake.completions) == set(server.fake.items)
        assert server.fake.duplicates == 0
        by_replica = [done.replica for done in server.fake.completions.values()]
        assert min(by_replica.count(address) for address in addresses) > 10
        assert any(done.attempts > 1 for done in server.fake.completions.values())


async def test_failed_requests_are_retried_until_every_item_is_answered(started: Processes) -> None:
    endpoints = [
        await started.recorded_here("--echo-tokens", "3", "--fault-rate", "0.3", "--fault-seed", str(seed))
        for seed in (1, 2)
    ]
    async with ledger_server(work_items(300)) as server:
        generator = await started.generator(server, endpoints, "--concurrency", "32", "--backoff-seconds", "0.01")
        assert await generator.wait() == 0, generator.errors
        assert set(server.fake.completions) == set(server.fake.items)
        assert sum(done.attempts for done in server.fake.completions.values()) > 330


async def test_items_of_a_hanging_endpoint_are_answered_by_another_endpoint(started: Processes) -> None:
    hung = await started.recorded_here("--echo-tokens", "3", "--fault-rate", "1", "--fault-kinds", "hang")
    good = await started.recorded_here("--echo-tokens", "3")
    limits = ("--concurrency", "4", "--request-seconds", "0.3", "--request-seconds-per-token", "0")
    async with ledger_server(work_items(100)) as server:
        generator = await started.generator(server, [hung, good], *limits)
        assert await generator.wait() == 0, generator.errors
        assert {done.replica for done in server.fake.completions.values()} == {good}


async def test_generator_waits_for_an_unreachable_ledger_and_answers_every_item(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3", "--latency-seconds", "0.02")
    async with ledger_server(work_items(300)) as server:
        generator = await started.generator(server, [endpoint], "--concurrency", "8")
        await server.until_stored(50)
        await server.stop()
        server.fake.leases.clear()  # an aggregator that was started again knows of no lease
        await generator.until_logged("is unreachable")
        await server.start()
        assert await generator.wait() == 0, generator.errors
        assert set(server.fake.completions) == set(server.fake.items)


async def test_generator_killed_and_restarted_answers_every_item_and_changes_none(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3", "--latency-seconds", "0.02")
    async with ledger_server(work_items(300)) as server:
        for stored in (40, 120):
            generator = await started.generator(server, [endpoint], "--concurrency", "8")
            await server.until_stored(stored)
            await generator.kill()
        kept = dict(server.fake.completions)
        generator = await started.generator(server, [endpoint], "--concurrency", "8")
        assert await generator.wait() == 0, generator.errors
        assert set(server.fake.completions) == set(server.fake.items)
        assert all(server.fake.completions[key] is done for key, done in kept.items())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_requests_in_flight_end(started: Processes, number: signal.Signals) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3", "--latency-seconds", "0.3")
    async with ledger_server(work_items(1000)) as server:
        generator = await started.generator(server, [endpoint], "--concurrency", "10")
        await server.until_stored(10)
        stored = len(server.fake.completions)
        await until_in_flight(endpoint, 10)
        generator.process.send_signal(number)
        assert await generator.wait() == 130, generator.errors
        assert len(server.fake.completions) >= stored + 10
        assert server.fake.remaining > 0


async def test_a_second_signal_ends_at_once(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3", "--latency-seconds", "50")
    async with ledger_server(work_items(3)) as server:
        generator = await started.generator(server, [endpoint], "--report-seconds", "0.05")
        await server.until_in_flight(3)
        generator.process.send_signal(signal.SIGTERM)
        await generator.until_logged("stopping")
        generator.process.send_signal(signal.SIGTERM)
        assert await generator.wait() == 130


async def test_generator_with_unreachable_endpoint_ends_with_message(started: Processes) -> None:
    async with ledger_server(work_items(3)) as server:
        generator = await started.generator(server, ["http://127.0.0.1:9"], "--start-seconds", "0.5")
        assert await generator.wait() == 2
        last = generator.errors.splitlines()[-1]
        assert last.startswith("evalrun: endpoint http://127.0.0.1:9 unreachable: ")
        assert "refused" in last


async def test_endpoint_that_serves_another_model_ends_the_generator_with_a_message(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3", "--model", "something/else")
    async with ledger_server(work_items(3)) as server:
        generator = await started.generator(server, [endpoint])
        assert await generator.wait() == 2
        assert "does not serve model 'recorded'; it serves: something/else" in generator.errors.splitlines()[-1]
        assert not server.fake.completions


async def test_wrong_api_key_ends_the_generator_and_is_never_logged(started: Processes) -> None:
    endpoint = await started.recorded("--echo-tokens", "3", environment={"EVALRUN_RECORDED_TOKEN": "right-key"})
    async with ledger_server(work_items(3)) as server:
        wrong = await started.generator(
            server, [endpoint.address], environment={"EVALRUN_GENERATOR_API_KEY": "wrong-key"}
        )
        assert await wrong.wait() == 2
        assert "HTTP 401: Incorrect API key provided." in wrong.errors.splitlines()[-1]
        assert "wrong-key" not in wrong.errors
        right = await started.generator(
            server, [endpoint.address], environment={"EVALRUN_GENERATOR_API_KEY": "right-key"}
        )
        assert await right.wait() == 0, right.errors


async def test_wrong_ledger_token_ends_the_generator_and_is_never_logged(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3")
    async with ledger_server(work_items(3), token="right-token") as server:
        environment = {"EVALRUN_GENERATOR_LEDGER_TOKEN": "wrong-token"}
        wrong = await started.generator(server, [endpoint], environment=environment)
        assert await wrong.wait() == 2
        assert f"the ledger at {server.address} refuses: UNAUTHENTICATED" in wrong.errors.splitlines()[-1]
        assert "wrong-token" not in wrong.errors
        environment = {"EVALRUN_GENERATOR_LEDGER_TOKEN": "right-token"}
        right = await started.generator(server, [endpoint], environment=environment)
        assert await right.wait() == 0, right.errors


async def test_generator_without_a_trusted_certificate_cannot_reach_the_ledger(
    started: Processes, tmp_path: Path
) -> None:
    endpoint, issued, other = await started.recorded_here("--echo-tokens", "3"), authority(), authority()
    directories = [TlsDirectory(tmp_path / "server").write("gateway", issued)]
    directories += [
        TlsDirectory(tmp_path / name).write("client", own, issued) for name, own in (("a", issued), ("b", other))
    ]
    async with ledger_server(work_items(3), tls=directories[0]) as server:
        for shown in ([], [f"--ledger-tls-folder={directories[2]}"]):
            refused = await started.generator(server, [endpoint], "--start-seconds=1", *shown)
            assert await refused.wait() == 2, refused.errors
            assert "unreachable" in refused.errors
        assert not server.fake.completions
        taken = await started.generator(server, [endpoint], f"--ledger-tls-folder={directories[1]}")
        assert await taken.wait() == 0, taken.errors


async def test_generator_waits_for_a_full_ledger_disk_without_asking_twice(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3")
    async with ledger_server(work_items(20)) as server:
        server.service.storing_fails = grpc.StatusCode.RESOURCE_EXHAUSTED
        generator = await started.generator(server, [endpoint])
        await generator.until_logged("RESOURCE_EXHAUSTED")
        server.service.storing_fails = None
        assert await generator.wait() == 0, generator.errors
        assert server.fake.remaining == 0
        assert all(done.attempts == 1 for done in server.fake.completions.values())  # nothing was asked for twice


async def test_a_disk_that_stays_full_is_a_resumable_stop(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3")
    async with ledger_server(work_items(20)) as server:
        server.service.storing_fails = grpc.StatusCode.RESOURCE_EXHAUSTED
        generator = await started.generator(server, [endpoint], "--ledger-seconds", "0.5")
        assert await generator.wait() == 1
        assert "has been unreachable for" in generator.errors.splitlines()[-1]


async def test_replaced_generator_ends_at_once(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3")
    async with ledger_server(work_items(20)) as server:
        server.service.storing_fails = grpc.StatusCode.FAILED_PRECONDITION
        generator = await started.generator(server, [endpoint], "--epoch", "7")
        assert await generator.wait() == 1
        assert "as ordered" in generator.errors.splitlines()[-1]
        assert server.fake.completions == {}


async def test_answers_of_other_weights_end_generator_at_once_as_internal_failure(
    started: Processes,
) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3")
    async with ledger_server(work_items(20)) as server:
        server.service.storing_fails = grpc.StatusCode.ABORTED
        generator = await started.generator(server, [endpoint])
        assert await generator.wait() == 1
        assert "the ledger refuses as ordered" in generator.errors.splitlines()[-1]
        assert server.fake.completions == {}


async def test_generator_with_unreachable_ledger_ends_with_message(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "3")
    async with ledger_server([]) as server:
        await server.stop()
        generator = await started.generator(server, [endpoint], "--start-seconds", "0.5")
        assert await generator.wait() == 2
        assert f"ledger {server.address} unreachable" in generator.errors.splitlines()[-1]


async def test_all_endpoints_gone_is_a_resumable_stop(started: Processes) -> None:
    endpoint = await started.recorded("--echo-tokens", "3", "--latency-seconds", "0.02")
    async with ledger_server(work_items(300)) as server:
        generator = await started.generator(server, [endpoint.address], "--concurrency", "8", "--outage-seconds", "0.5")
        await server.until_stored(50)
        await endpoint.kill()
        assert await generator.wait() == 1
        last = generator.errors.splitlines()[-1]
        assert "no endpoint has answered for" in last
        assert endpoint.address in last
