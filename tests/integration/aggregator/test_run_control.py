"""Acts of control on the aggregator's real process: what they change, what outlasts a kill, what the record says."""

import json
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders.aggregator.process import AggregatorProcess, Worker, read_results, running, write_run_config

from evalrun_aggregator.control.access import access_path, read_access
from evalrun_aggregator.control.acts import Act, Pause, RequeueNotJudged, Resume, SetConcurrency, Stop
from evalrun_aggregator.control.client import NotRunningError, control_ledger
from evalrun_aggregator.control.messages import make_request
from evalrun_client.fake_judge import Answer, FakeJudge, FakeJudgeServer, make_scripted_verdict, unavailable
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

PROBLEMS = 12


class Run:
    """A run with a judge that answers as its `judge.script` says."""

    def __init__(self, directory: Path, judge: FakeJudge, judge_address: str) -> None:
        order = write_run_config(directory, problems=PROBLEMS)
        self.ledger = directory / "l.sqlite3"
        self.outputs = directory / "out"
        self.judge = judge
        self.arguments = [
            "--work-order", str(order), "--ledger", str(self.ledger), "--judge", judge_address,
            "--judge-attempts", "1", "--judge-patience-seconds", "0",
        ]  # fmt: skip

    async def act(self, act: Act) -> ledger_pb2.ControlRunResponse:
        return await control_ledger(self.ledger, act)

    @property
    def events(self) -> list[tuple[str, str]]:
        info: dict[str, Any] = json.loads((self.outputs / "run_info.json").read_text())
        return [(event["act"], event["detail"]) for event in info["events"]]


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    judge = FakeJudge()
    server = FakeJudgeServer(judge)
    yield Run(tmp_path, judge, await server.start())
    await server.stop()


async def judged(worker: Worker, count: int) -> None:
    while (await worker.status()).datasets[0].judged < count:
        continue


async def restarted(process: AggregatorProcess, worker: Worker, number: signal.Signals = signal.SIGKILL) -> Worker:
    """End the process, start it again, and return a worker of the new one: the old one's channel may wait."""
    await worker.close()
    await process.end(number)
    return Worker(await process.start())


async def test_paused_run_leases_and_judges_nothing_even_after_a_kill_until_resumed(run: Run) -> None:
    async with running(*run.arguments) as process:
        worker = Worker(process.address)
        items = list((await worker.take(4)).items)
        first, second = await run.act(Pause()), await run.act(Pause())
        assert (first.changed, first.paused, second.changed, second.paused) == (True, True, False, True)
        assert await worker.submit(items) == 4  # what was in flight is stored
        worker = await restarted(process, worker)
        work = await worker.take(8, fresh=True)
        assert (len(work.items), work.remaining, work.max_in_flight, work.retry_after_ms) == (0, PROBLEMS - 4, 0, 500)
        status = await worker.status()
        assert (status.paused, status.datasets[0].generated, run.judge.requests) == (True, 4, 0)
        assert status.message.startswith("paused: ")
        resumed = await run.act(Resume())
        assert (resumed.changed, resumed.paused, (await run.act(Resume())).changed) == (True, False, False)
        assert not (await worker.take(0)).HasField("max_in_flight")
        await worker.work()
        await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert run.events == [("pause", ""), ("resume", "")]
    assert len(read_results(run.outputs)) == run.judge.requests == PROBLEMS


async def test_restart_that_lifts_the_pause_continues_the_run(run: Run) -> None:
    async with running(*run.arguments) as process:
        worker = Worker(process.address)
        await run.act(Pause())
        process.arguments.append("--lift-pause")
        worker = await restarted(process, worker, signal.SIGTERM)
        await worker.work()
        await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert run.events == [("pause", ""), ("resume", "the run was resumed")]


async def test_in_flight_bound_reaches_workers_until_it_is_lifted(run: Run) -> None:
    async with running(*run.arguments) as process:
        worker = Worker(process.address)
        assert not (await worker.take(0)).HasField("max_in_flight")
        assert (await run.act(SetConcurrency(3))).max_in_flight == 3
        assert not (await run.act(SetConcurrency(3))).changed
        worker = await restarted(process, worker)
        assert (await worker.take(0)).max_in_flight == 3
        assert (await worker.status()).max_in_flight == 3
        await run.act(Pause())
        assert (await worker.take(0)).max_in_flight == 0
        await run.act(Resume())
        assert (await worker.take(0)).max_in_flight == 3
        assert not (await run.act(SetConcurrency(None))).HasField("max_in_flight")
        assert not (await worker.take(0)).HasField("max_in_flight")
        await worker.work()
        await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert run.events == [
        ("set", "concurrency=3"), ("pause", ""), ("resume", ""), ("set", "concurrency=default"),
    ]  # fmt: skip


async def test_requeue_judges_answers_not_judged_and_changes_no_verdict(run: Run) -> None:
    def for_even_numbers(request: judge_pb2.JudgeRequest) -> Answer:
        number = int(request.submission.text.split()[0].removeprefix("p"))
        return unavailable() if number % 2 else make_scripted_verdict(request)

    run.judge.script = for_even_numbers
    async with running(*run.arguments) as process:
        worker = Worker(process.address)
        assert not (await run.act(RequeueNotJudged())).changed
        items = list((await worker.take(8)).items)
        await worker.submit(items)
        while (await worker.status()).datasets[0].not_judged < 4:
            continue
        await judged(worker, 4)
        asked, run.judge.script = run.judge.requests, make_scripted_verdict
        queued, again = await run.act(RequeueNotJudged()), await run.act(RequeueNotJudged())
        assert (queued.requeued, queued.changed, again.requeued, again.changed) == (4, True, 0, False)
        await judged(worker, 8)
        assert (await worker.status()).datasets[0].not_judged == 0
        assert run.judge.requests == asked + 4
        await worker.work()
        await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert run.events == [("requeue-not-judged", "4 answers")]
    accepted = [row["accepted"] for row in read_results(run.outputs)]
    assert accepted == [number % 3 != 0 for number in range(PROBLEMS)]


async def test_requeued_answers_are_judged_after_a_kill(run: Run) -> None:
    run.judge.script = lambda _request: unavailable()
    async with running(*run.arguments) as process:
        worker = Worker(process.address)
        await worker.submit(list((await worker.take(4)).items))
        while (await worker.status()).datasets[0].not_judged < 4:
            continue
        await run.act(Pause())
        assert (await run.act(RequeueNotJudged())).requeued == 4
        run.judge.script = make_scripted_verdict
        worker = await restarted(process, worker)
        assert (await worker.status()).datasets[0].not_judged == 0
        await run.act(Resume())
        await judged(worker, 4)
        await worker.close()


async def test_stopped_run_keeps_results_and_can_be_resumed(run: Run) -> None:
    async with running(*run.arguments, "--retry-not-judged") as process:
        worker = Worker(process.address)
        nothing = await run.act(Stop())
        assert (nothing.refusal, nothing.changed) == (ledger_pb2.CONTROL_REFUSAL_NO_ANSWER, False)
        await worker.submit(list((await worker.take(5)).items))
        await judged(worker, 5)
        await run.act(Pause())
        stopped = await run.act(Stop())
        assert (stopped.changed, stopped.paused) == (True, False)
        status = await worker.wait_for(ledger_pb2.RUN_STATE_DEGRADED)
        assert (status.ended_early, status.stopped_by_user) == ("stopped by evalrun ctl", True)
        assert not (await run.act(Stop())).changed
        for act in (Pause(), Resume(), RequeueNotJudged(), SetConcurrency(2)):
            assert (await run.act(act)).refusal == ledger_pb2.CONTROL_REFUSAL_ENDED
        summary = json.loads((run.outputs / "summary.json").read_text())
        assert (summary["state"], summary["partial"]) == ("Degraded", "stopped by evalrun ctl")
        assert run.events == [("pause", ""), ("stop", "stopped by evalrun ctl")]
        before = read_results(run.outputs)
        worker = await restarted(process, worker, signal.SIGTERM)
        assert (await worker.status()).stopped_by_user is False
        await worker.work()
        await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    after = read_results(run.outputs)
    assert json.loads((run.outputs / "summary.json").read_text()).get("partial") is None
    assert (len(after), after[:5]) == (PROBLEMS, before[:5])


async def test_act_without_the_access_file_or_outside_of_a_running_run_is_refused(run: Run) -> None:
    with pytest.raises(NotRunningError):
        await run.act(Pause())
    async with running(*run.arguments) as process:
        path = access_path(run.ledger)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        access = read_access(run.ledger)
        assert access is not None
        assert access.address.startswith("grpc://127.0.0.1:")
        async with open_channel(access.address) as channel:
            stub: ledger_pb2_grpc.ControlServiceAsyncStub = ledger_pb2_grpc.ControlServiceStub(channel)
            for metadata in ((), (("authorization", "Bearer guessed"),)):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.ControlRun(make_request(Pause()), metadata=metadata)
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            token = (("authorization", f"Bearer {access.token}"),)
            with pytest.raises(grpc.aio.AioRpcError) as unusable:
                await stub.ControlRun(ledger_pb2.ControlRunRequest(), metadata=token)
            assert unusable.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        async with open_channel(process.address) as channel:  # where workers come
            stub = ledger_pb2_grpc.ControlServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as elsewhere:
                await stub.ControlRun(make_request(Pause()))
            assert elsewhere.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await process.end(signal.SIGKILL)
        assert path.exists()
        with pytest.raises(NotRunningError):
            await run.act(Pause())
        await process.start()
        renewed = read_access(run.ledger)
        assert renewed is not None
        assert renewed.token != access.token
        assert (await run.act(Pause())).changed
        assert await process.end() == 0
        assert renewed.token not in process.stderr
        assert not path.exists()
