"""The trainers' single calls against the real HTTP server: answers, refusals, replicas that are away."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from builders.ports import free_port
from builders.reward.service import ECHO, TESTS, served

from evalrun_client.fake_judge import FakeJudge
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_trainers.calls import RewardCalls, SessionOverError, StateLostError
from evalrun_trainers.client import NotJudgedError, RefusedError
from evalrun_trainers.options import Options

calling = contextlib.closing
START = {"instance_hash": "i", "ground_truth": TESTS}


async def test_session_is_played_through_a_replica_that_answers(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    async with served(session_store=str(tmp_path / "s"), max_turns=1) as it:
        with calling(RewardCalls(Options(url=f"{away},{it.address}"), sleep=lambda seconds: None)) as calls:
            started = await asyncio.gather(*(calls.post("/start_instance", START) for _ in range(8)))
            sid = started[0]["sid"]
            assert len({answer["sid"] for answer in started}) == 8
            assert "content" in await calls.post("/process_action", {"sid": sid, "content": ECHO})
            with pytest.raises(SessionOverError, match="--max-turns"):
                await calls.post("/process_action", {"sid": sid, "content": "another"})
            reward = await calls.post("/compute_reward", {"sid": sid})
            assert (reward["reward"], reward["turns"]) == (1.0, 1)
            with pytest.raises(SessionOverError, match="closed"):
                await calls.post("/process_action", {"sid": sid, "content": "another"})
            with pytest.raises(StateLostError, match="state lost"):
                await calls.post("/compute_reward", {"sid": "1"})
            with pytest.raises(RefusedError, match="unknown field"):
                await calls.post("/compute_reward", {"sid": sid, "shape": "x"})


async def test_session_not_judged_in_time_raises_instead_of_a_reward(tmp_path: Path) -> None:
    def unknown(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        return judge_pb2.Verdict(judged=False, permanent=True)

    async with served(FakeJudge(unknown), session_store=str(tmp_path / "s"), token="secret") as it:
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds + 1  # the options' time is by this clock

        options = Options(url=it.address, token="secret", timeout_seconds=5)
        with calling(RewardCalls(options, clock=lambda: now[0], sleep=sleep)) as calls:
            sid = (await calls.post("/start_instance", START))["sid"]
            with pytest.raises(NotJudgedError, match="not judged"):
                await calls.post("/compute_reward", {"sid": sid})
        with calling(RewardCalls(Options(url=it.address))) as without_token, pytest.raises(RefusedError, match="401"):
            await without_token.post("/compute_reward", {"sid": sid})
