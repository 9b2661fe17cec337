"""Replicas of real verl and vLLM on a real Ray cluster: the generator is killed, a replica hangs, and one dies.

One replica is always loaded; two with their replacements, which is four loads, by `make test-rollout`. The unit tests
of the replica manager have these faults in other orders, with a cluster that is pretended.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from builders.generator.rollout import (
    RayHead,
    RolloutProcess,
    engine_of,
    kill,
    make_tiny_model,
    ray_head,
    run_config,
    send,
    start_rollout,
    title,
)
from builders.generator.work import LedgerServer, ledger_server, work_items

from evalrun_generator.ledger.keys import Key
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_runtime.exits import ExitCode

pytestmark = pytest.mark.timeout(3000)
"""Loading verl and vLLM takes five processes 20 s of CPU each, for every replica."""

SOMEBODY = "somebody else"
PATIENCE = ("--quiet-seconds=3", "--hang-seconds=60", "--replica-start-seconds=400")
"""Beside other tests on two cores an engine that works may be silent for 20 s, and take minutes to load."""
ATTEMPTS = 4
"""A supervisor that is silent for a minute ends an attempt, not the run: the operator would start the next one."""


def hold_back(server: LedgerServer) -> Key:
    """Lease one item to nobody, so that the run cannot end before the test has seen what it wants to see."""
    key = next(reversed(server.fake.items))
    server.fake.leases[key] = SOMEBODY
    return key


def latest(server: LedgerServer) -> dict[str, ledger.Replica]:
    return {replica.name: replica for report in server.fake.reports[-1:] for replica in report}


def starts(server: LedgerServer) -> dict[tuple[str, float], ledger.Replica]:
    return {(replica.name, replica.started_at): replica for report in server.fake.reports for replica in report}


class Rollouts:
    """The generators of a test, one at a time, each started again as the operator would start it."""

    def __init__(self, head: RayHead, order: Path, server: LedgerServer, directory: Path) -> None:
        self._head = head
        self._order = order
        self._server = server
        self._directory = directory
        self._count = 0
        self.current: RolloutProcess

    async def start(self) -> None:
        self._count += 1
        log = self._directory / f"generator-{self._count}.log"
        self.current = await start_rollout(self._head, self._order, self._server.address, log, *PATIENCE)

    async def until(self, condition: str, seconds: float = 1200) -> None:
        """Wait until every word of `condition` holds: `2 up`, `70 stored`, `3 starts`, `2 released`."""
        number, _, what = condition.partition(" ")
        measures = {
            "up": lambda: sum(replica.up for replica in latest(self._server).values()),
            "stored": lambda: len(self._server.fake.completions),
            "starts": lambda: len(starts(self._server)),
            "released": lambda: sum(bool(one.released_at) for one in starts(self._server).values()),
        }
        await self.until_holds(lambda: measures[what]() >= int(number), seconds)

    async def until_holds(self, condition: Callable[[], bool], seconds: float = 1200) -> None:
        """Wait until the condition holds, which is looked at after each call of the ledger."""
        attempts = asyncio.create_task(self._start_again())
        calls = asyncio.create_task(self._after_calls(condition))
        try:
            await asyncio.wait([attempts, calls], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if calls.done():
                return calls.result()
            why = "the generator has ended" if attempts.done() else f"not seen within {seconds:g} s"
            pytest.fail(f"{why}; {await self._state()}")
        finally:
            attempts.cancel()
            calls.cancel()
            await asyncio.gather(attempts, calls, return_exceptions=True)

    async def _after_calls(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._server.fake.changed.clear()
            await self._server.fake.changed.wait()

    async def _start_again(self) -> None:
        for _ in range(ATTEMPTS - 1):
            if await self.current.process.wait() in (ExitCode.SUCCEEDED, ExitCode.BAD_INPUT):
                return
            print(f"an attempt failed: {self.current.log[-1000:]}")
            await self.current.start()
        await self.current.process.wait()

    async def _state(self) -> str:
        replicas = "\n".join(map(str, starts(self._server).values()))
        stored = len(self._server.fake.completions)
        process = self.current.process.returncode
        return "\n".join(
            [
                f"{stored} stored; the generator's exit: {process}; replicas:",
                replicas,
                f"log of the generator:\n{self.current.log[-3000:]}",
                f"stacks:\n{await self._head.stacks()}",
            ]
        )


def a_serving_engine(head: RayHead) -> int:
    return next(server for server in head.servers() if engine_of(server))


def hang(head: RayHead) -> list[int]:
    """Stop the engine of a replica that serves; return the engine's processes."""
    stopped = list(engine_of(a_serving_engine(head)))
    for process in stopped:
        send(process, signal.SIGSTOP)
    return stopped


@asynccontextmanager
async def one_replica_serving(gen_cpu: Path, directory: Path) -> AsyncIterator[tuple[LedgerServer, RayHead, Rollouts]]:
    """Start Ray and a generator of one replica, and wait for answers."""
    model = await make_tiny_model(gen_cpu, directory / "model")
    order = run_config(directory, model, replicas=1, gpusPerNode=1)
    async with ledger_server(work_items(2000)) as server, ray_head(gen_cpu, directory, gpus=1) as head:
        rollouts = Rollouts(head, order, server, directory)
        await rollouts.start()
        await rollouts.until("20 stored")
        yield server, head, rollouts


async def test_replica_outlives_its_generator_and_a_hung_replica_is_ended(gen_cpu: Path, tmp_path: Path) -> None:
    async with one_replica_serving(gen_cpu, tmp_path) as (server, head, rollouts):
        loaded = {key: replica.load_format for key, replica in starts(server).items()}
        assert set(loaded.values()) <= {"auto", ""}, "a start that never served has no format"

        await rollouts.current.kill()
        in_flight = set(server.fake.leases)
        assert in_flight
        await rollouts.start()
        await rollouts.until_holds(lambda: in_flight <= server.fake.completions.keys())
        assert set(starts(server)) == set(loaded), "weights were loaded again"

        released = sum(bool(one.released_at) for one in starts(server).values())
        stopped = hang(head)
        await rollouts.until(f"{released + 1} released")
        assert not [pid for pid in stopped if title(pid)], "a hung engine outlived its replica"

        server.fake.cancelled = True  # its replacement would be another load
        async with asyncio.timeout(300):
            assert await rollouts.current.process.wait() == 0, rollouts.current.log[-3000:]
        assert {one.replica for one in server.fake.completions.values()} == {"replica-0"}
        assert all(completion.output_tokens for completion in server.fake.completions.values())
        assert server.fake.duplicates == 0
        assert all(one.released_at > one.started_at and one.gpus == 1 for one in starts(server).values())
        assert head.servers() == []


@pytest.mark.skipif(os.environ.get("EVALRUN_TEST_ROLLOUT") != "all", reason="takes minutes: make test-rollout")
async def test_each_completion_is_stored_once_although_replicas_and_generator_fail(
    gen_cpu: Path, tmp_path: Path
) -> None:
    items = work_items(2000)
    model = await make_tiny_model(gen_cpu, tmp_path / "model")
    order = run_config(tmp_path, model)
    async with ledger_server(items) as server, ray_head(gen_cpu, tmp_path) as head:
        held = hold_back(server)
        # Enough to keep two replicas busy until the end; the rest is given up once everything has been seen.
        rollouts = Rollouts(head, order, server, tmp_path)
        await rollouts.start()
        await rollouts.until("2 up")
        await rollouts.until(f"{len(server.fake.completions) + 20} stored")
        loaded = {key: replica.load_format for key, replica in starts(server).items()}
        assert set(loaded.values()) == {"auto"}

        await rollouts.current.kill()
        before = len(server.fake.completions)
        await rollouts.start()
        await rollouts.until(f"{before + 40} stored")
        assert set(starts(server)) == set(loaded), "weights were loaded again"

        kill(a_serving_engine(head))
        await rollouts.until("1 released")
        await rollouts.until("3 starts")
        before = len(server.fake.completions)
        await rollouts.until(f"{before + 10} stored")

        await rollouts.until("2 up")
        stopped = hang(head)
        await rollouts.until("2 released")
        assert not [pid for pid in stopped if title(pid)], "a hung engine outlived its replica"

        for key in list(server.fake.items):
            if key not in server.fake.completions and key not in server.fake.leases:
                del server.fake.items[key]
        server.fake.leases.pop(held)
        async with asyncio.timeout(300):
            assert await rollouts.current.process.wait() == 0, rollouts.current.log[-3000:]

        assert server.fake.remaining == 0
        counted = Counter(completion.replica for completion in server.fake.completions.values())
        assert set(counted) == {"replica-0", "replica-1"}
        assert all(completion.output_tokens for completion in server.fake.completions.values())
        assert server.fake.duplicates == 0
        ended = starts(server).values()
        assert all(one.released_at > one.started_at and one.gpus == 1 for one in ended)
        assert head.servers() == []
