"""Requests that follow one another without a pause while something is exchanged: none may be lost."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from evalrun_client.judge_client import GrpcJudge
from evalrun_proto.judge.v1 import judge_pb2

WAIT_SECONDS = 300.0
CALLERS = 4


def echo_request() -> judge_pb2.JudgeRequest:
    return judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text="print(input())", mode=judge_pb2.SUBMISSION_MODE_STANDALONE),
        stdio=judge_pb2.StdioTests(tests=[judge_pb2.StdioTest(input="1\n", expected_output="1\n")]),
    )


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - another process brings it about
        await asyncio.sleep(0.05)


@asynccontextmanager
async def steady_load(client: GrpcJudge) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Ask a judge all the while; yields what waits for so many more answers.

    Closes the client at the end. Raises AssertionError if any answer was not an accepted verdict.
    """
    verdicts: list[judge_pb2.Verdict | judge_pb2.StreamFailure] = []
    over = asyncio.Event()

    async def load() -> None:
        while not over.is_set():
            verdicts.append(await client.judge(echo_request()))

    async def judged(more: int) -> None:
        wanted = len(verdicts) + more
        await until(lambda: len(verdicts) >= wanted)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(load())
        yield judged
        over.set()
    await client.close()
    assert [one for one in verdicts if not isinstance(one, judge_pb2.Verdict) or not one.accepted] == []
