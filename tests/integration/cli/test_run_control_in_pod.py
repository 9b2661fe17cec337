"""`evalrun ctl er/NAME`: the program that it has run in the aggregator's pod is the real one, run here beside a real
aggregator."""

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from builders.aggregator.process import Worker, running, write_run_config
from builders.operator.world import generating

from evalrun_aggregator.control.acts import Pause, Resume, SetConcurrency, Stop
from evalrun_api.v1alpha1 import EvalRun
from evalrun_cli.control.cluster_runs import LEDGER, PROGRAM, ask_aggregator, make_controlled_run
from evalrun_cli.control.texts import outcome_text, refusal_text
from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_cluster.runs import CommandFailedError, RunPod
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError

POD = RunPod("run-aggregator-0", "aggregator", ("aggregator",), ready=True)
RunIn = Callable[[RunPod, Sequence[str], BinaryIO], Awaitable[None]]


def over() -> EvalRun:
    return generating().generate_all().judge_all().settle().run


def in_pod(ledger: Path) -> RunIn:
    """Run a command as in the pod, where `ledger` is the pod's."""

    async def run(pod: RunPod, command: Sequence[str], output: BinaryIO) -> None:
        assert pod is POD
        arguments = [str(ledger) if word == LEDGER else word for word in command[1:]]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        printed, said = await process.communicate()
        output.write(printed)
        if process.returncode:
            raise CommandFailedError(said.decode().strip(), process.returncode)

    return run


def failing(code: int) -> RunIn:
    async def run(pod: RunPod, command: Sequence[str], output: BinaryIO) -> None:
        del pod, command, output
        raise CommandFailedError("running python in pod run-aggregator-0: exit code 1: it is not there", code)

    return run


async def test_acts_reach_the_aggregator_through_its_pod(tmp_path: Path) -> None:
    server, run = FakeJudgeServer(FakeJudge()), generating().run
    order, ledger = write_run_config(tmp_path, problems=4), tmp_path / "ledger.sqlite"
    arguments = ["--work-order", str(order), "--ledger", str(ledger), "--judge", await server.start()]
    names = make_controlled_run(run, "evals")
    async with running(*arguments) as process:
        worker = Worker(process.address)
        paused = await ask_aggregator(run, POD, in_pod(ledger), Pause())
        assert (paused.changed, paused.paused) == (True, True)
        assert outcome_text(Pause(), paused, names) == "er/run: paused; go on with: evalrun ctl er/run resume"
        bound = await ask_aggregator(run, POD, in_pod(ledger), SetConcurrency(2))
        assert (bound.max_in_flight, bound.paused) == (2, True)
        assert (await worker.take(4)).max_in_flight == 0
        nothing = await ask_aggregator(run, POD, in_pod(ledger), Stop())
        assert refusal_text(nothing, names) == (
            "er/run has no answer yet, so there is nothing to keep: wait for the first"
        )
        await ask_aggregator(run, POD, in_pod(ledger), Resume())
        await worker.submit(list((await worker.take(2)).items))
        assert (await ask_aggregator(run, POD, in_pod(ledger), Stop())).changed
        await worker.wait_for(ledger_pb2.RUN_STATE_DEGRADED)
        late = await ask_aggregator(run, POD, in_pod(ledger), Pause())
        assert late.refusal == ledger_pb2.CONTROL_REFUSAL_ENDED
        await worker.close()
    await server.stop()


async def test_act_without_an_aggregator_reports_an_ended_run_or_a_missing_aggregator() -> None:
    run = over()
    gone = await ask_aggregator(run, None, failing(1), Pause())
    said = refusal_text(gone, make_controlled_run(run, "evals"))
    assert said == (
        "er/run has ended: evalrun results run -n evals --output DIR brings its answers, and evalrun judge --problems "
        "FILE --responses DIR/results.jsonl judges them again"
    )
    assert refusal_text(await ask_aggregator(run, None, failing(1), Stop()), make_controlled_run(run, "evals")) is None
    with pytest.raises(BadInputError, match="the aggregator of EvalRun run does not run now"):
        await ask_aggregator(generating().run, None, failing(1), Pause())


async def test_older_aggregator_is_distinguished_from_a_refusing_one() -> None:
    run = generating().run
    with pytest.raises(BadInputError, match="is of a release without evalrun ctl"):
        await ask_aggregator(run, POD, failing(1), Pause())
    with pytest.raises(CommandFailedError, match="it is not there"):
        await ask_aggregator(run, POD, failing(2), Pause())


async def test_missing_program_in_the_pod_fails_with_exit_code_1(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError) as failed:
        await in_pod(tmp_path)(POD, [*PROGRAM[:2], "evalrun_aggregator.not_there"], io.BytesIO())
    assert failed.value.exit_code == 1
