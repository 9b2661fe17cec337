"""A minimal gateway in Python: it passes a gRPC stream on to the sandbox's HTTP API, and does no other work.

`gateway_overhead.py` starts it beside the gateway. It uses the gateway's client of the sandbox, event loop and
libraries, so the gateway's additional cost is planning, queueing, comparing and reporting. It checks nothing and bounds
nothing, so it is for measuring only.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from pydantic import Field

from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.cpus import usable_cpus
from evalrun_judge.sandboxes.evalrun_http import EvalrunSandbox
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import ServiceSettings, load_settings


class PassOnSettings(ServiceSettings):
    """Settings of the benchmark's own gateway."""

    sandbox: str = Field(description="URL of the sandbox.")


class PassOn(judge_pb2_grpc.JudgeServiceServicer):
    """Sends each submission's text to the sandbox unchanged, and replies that the submission was accepted."""

    def __init__(self, settings: PassOnSettings) -> None:
        """Create the gateway, which listens after `start`."""
        self._settings = settings
        self._sandbox = EvalrunSandbox(settings.sandbox)
        self._server = grpc.aio.server()
        judge_pb2_grpc.add_JudgeServiceServicer_to_server(self, self._server)

    async def start(self) -> str:
        """Start to listen. Return the address."""
        port = self._server.add_insecure_port(f"{self._settings.host}:{self._settings.port}")
        await self._server.start()
        return f"{self._settings.host}:{port}"

    async def stop(self, grace: float) -> None:
        await self._server.stop(grace)
        await self._sandbox.close()

    async def JudgeStream(  # type: ignore[override]  # noqa: N802 - the RPC's name
        self,
        request_iterator: AsyncIterator[judge_pb2.JudgeStreamRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        del request_iterator
        free, writing = asyncio.Semaphore(usable_cpus()), asyncio.Lock()

        async def answer(request: judge_pb2.JudgeRequest) -> None:
            inputs = [test.input.encode() for test in request.stdio.tests]
            program = request.submission.text.removeprefix("Here:\n```python\n").removesuffix("```\n")
            async with free:
                reply = await self._sandbox.run(RunRequest("python", program, inputs, Limits(2.0, 256, 1024)))
            accepted = all(run.exit_code == 0 for run in reply.runs)
            verdict = judge_pb2.Verdict(
                accepted=accepted,
                tests=[judge_pb2.TestResult(stdout=judge_pb2.CutText(text=run.stdout.decode())) for run in reply.runs],
            )
            async with writing:
                await context.write(judge_pb2.JudgeStreamResponse(request_id=request.request_id, verdict=verdict))

        async with asyncio.TaskGroup() as group:
            while (message := await context.read()) is not grpc.aio.EOF:
                group.create_task(answer(message.request))


def main() -> int:
    settings = load_settings(PassOnSettings, sys.argv[1:], program="pass_on_gateway")
    return run_service("pass-on", settings, lambda: PassOn(settings))  # type: ignore[abstract]  # the stream alone


if __name__ == "__main__":
    sys.exit(main())
