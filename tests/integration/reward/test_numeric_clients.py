"""A trainer's client that keeps ids in tensors and arrays, and what it gets while the judge is away."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.ports import free_port
from builders.reward.service import TESTS, post, served

from evalrun_client.fake_judge import Answer, FakeJudge
from evalrun_data.records import Problem, StdioTests
from evalrun_proto.judge.v1 import judge_pb2

INSTANCE = 4503599627370497
PROBLEM = Problem("train", str(INSTANCE), "Echo.", StdioTests(tuple(TESTS["inputs"]), tuple(TESTS["outputs"])))


class Tensor:
    """Stands in for a tensor of one number: all that a client asks of one is `item()`."""

    def __init__(self, value: int) -> None:
        self._value = value

    def item(self) -> int:
        return self._value


class NoRewardError(Exception):
    """The service answered no reward."""


class NumericClient:
    """Speaks the four calls as multi-turn trainers do: it keeps `int(answer["sid"])` and sends `sid.item()`."""

    def __init__(self, address: str, keep: Callable[[int], Any], timeout_milliseconds: int = 0) -> None:
        self._address = address
        self._keep = keep
        self._headers = {"evalrun-timeout-ms": str(timeout_milliseconds)} if timeout_milliseconds else {}

    async def start(self, instance_hash: int) -> Any:
        return self._keep(int((await self._post("start_instance", {"instance_hash": instance_hash}))["sid"]))

    async def act(self, sid: Any, content: str) -> str:
        """Take an action; returns the next message for the model."""
        return str((await self._post("process_action", {"sid": sid.item(), "content": content}))["content"])

    async def close(self, sid: Any) -> None:
        assert await self._post("postprocess", {"sid": sid.item()}) == {}

    async def reward(self, sid: Any) -> float:
        """Return the reward, or the share of tests passed where a service has none of its own."""
        answer = await self._post("compute_reward", {"sid": sid.item()})
        return float(answer.get("reward", answer["f2p_count"] / answer["f2p_total"]))

    async def _post(self, path: str, body: object) -> Any:
        status, answer, _ = await post(self._address, f"/{path}", body, self._headers)
        if status != 200:  # docs/rewards.md: no status but 200 is a reward
            raise NoRewardError(f"{status}: {answer['message']}")
        return answer


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "sessions.sqlite3")


@pytest.mark.parametrize("keep", [Tensor, np.int64, np.uint64, np.float64, np.array], ids=lambda keep: keep.__name__)
async def test_sessions_with_ids_kept_as_numbers_are_rewarded(keep: Callable[[int], Any], store: str) -> None:
    async with served(FakeJudge(), [PROBLEM], session_store=store) as it:
        client = NumericClient(it.address, keep)
        sid = await client.start(keep(INSTANCE).item())
        await client.act(sid, "print(1)  # accept")
        await client.close(sid)
        assert await client.reward(sid) == 1.0


def undecided(request: judge_pb2.JudgeRequest) -> Answer:
    return judge_pb2.Verdict(judged=False, permanent=True)


def refusing(request: judge_pb2.JudgeRequest) -> Answer:
    return judge_pb2.StreamFailure(code=3, message="unknown tests")


def unavailable(request: judge_pb2.JudgeRequest) -> Answer:
    return judge_pb2.StreamFailure(code=14, message="going away")


@pytest.mark.parametrize(
    ("script", "delay", "status"),
    [(undecided, 0.0, "503"), (unavailable, 0.0, "503"), (refusing, 0.0, "422"), (None, 60.0, "503")],
    ids=["undecided", "unavailable", "refusing", "slow"],
)
async def test_outage_of_the_judge_gives_no_reward_and_the_session_continues(
    script: Callable[[judge_pb2.JudgeRequest], Answer] | None, delay: float, status: str, store: str
) -> None:
    judge = FakeJudge()
    well = judge.script
    async with served(judge, [PROBLEM], session_store=store) as it:
        client = NumericClient(it.address, Tensor, timeout_milliseconds=1000)
        sid = await client.start(INSTANCE)
        await client.act(sid, "print(1)  # accept")
        judge.script, judge.delay = script or well, delay
        with pytest.raises(NoRewardError, match=status):
            await client.act(sid, "print(2)  # accept")
        with pytest.raises(NoRewardError, match=status):
            await client.reward(sid)
        judge.script, judge.delay = well, 0.0
        assert await client.reward(sid) == 1.0


async def test_dead_judge_gives_no_reward(store: str) -> None:
    dead = f"grpc://127.0.0.1:{free_port()}"
    async with served(None, [PROBLEM], dead, session_store=store) as it:
        client = NumericClient(it.address, Tensor, timeout_milliseconds=500)
        sid = await client.start(INSTANCE)
        for ask in (client.act(sid, "print(1)"), client.reward(sid)):
            with pytest.raises(NoRewardError, match="503"):
                await ask


async def test_lost_session_gives_no_reward(store: str) -> None:
    async with served(FakeJudge(), [PROBLEM], session_store=store) as it:
        with pytest.raises(NoRewardError, match="404: session 5: state lost"):
            await NumericClient(it.address, Tensor).reward(Tensor(5))
