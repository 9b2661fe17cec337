"""A generator that another has replaced neither takes nor stores anything, also after the aggregator is killed."""

import signal
from pathlib import Path

import grpc
import pytest
from builders.aggregator.process import Worker, running, write_run_config

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer


async def assert_refused(worker: Worker) -> None:
    items = worker.seen
    for call in (worker.take(4, fresh=True), worker.submit(items)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "a later generator of this run has taken over" in (refused.value.details() or "")


async def test_replaced_generator_that_returns_changes_nothing(tmp_path: Path) -> None:
    server = FakeJudgeServer(FakeJudge())
    order = write_run_config(tmp_path, problems=8)
    arguments = ["--work-order", str(order), "--ledger", str(tmp_path / "l.sqlite3"), "--judge", await server.start()]
    async with running(*arguments) as process:
        first = Worker(process.address, epoch=100)
        first.seen = list((await first.take(4)).items)
        second = Worker(process.address, epoch=160)
        second.seen = list((await second.take(4, fresh=True)).items)
        assert len(second.seen) == 4
        await assert_refused(first)
        assert (await second.status()).datasets[0].generated == 0
        assert await second.submit(second.seen) == 4
        await first.close()
        await second.close()
        await process.end(signal.SIGKILL)
    async with running(*arguments) as process:
        late, now = Worker(process.address, epoch=100), Worker(process.address, epoch=160)
        late.seen = first.seen
        await assert_refused(late)
        await now.work()
        assert (await now.status()).datasets[0].generated == (await now.status()).datasets[0].total
        await late.close()
        await now.close()
    await server.stop()
