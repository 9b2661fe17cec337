"""A client with torch tensors and numpy scalars, before a judge that decides, refuses, is slow, or is gone."""

from contextlib import AsyncExitStack
from pathlib import Path

from builders.other_interpreter import ask_script
from builders.ports import free_port
from builders.reward.service import ECHO, TESTS, served

from evalrun_client.fake_judge import Answer, FakeJudge
from evalrun_data.records import Problem, StdioTests
from evalrun_proto.judge.v1 import judge_pb2

INSTANCE = 4503599627370497
PROBLEM = Problem("train", str(INSTANCE), "Echo.", StdioTests(tuple(TESTS["inputs"]), tuple(TESTS["outputs"])))
WAYS = ("int64", "float64", "batch", "numpy")


def refusing(request: judge_pb2.JudgeRequest) -> Answer:
    return judge_pb2.StreamFailure(code=3, message="unknown tests")


async def test_torch_tensors_as_ids_get_rewards_and_no_outage_is_a_zero(gen_cpu: Path, tmp_path: Path) -> None:
    """One process of the client plays with all four services: importing torch takes seconds of CPU."""
    slow = FakeJudge()
    slow.delay = 3600.0
    judges = {"well": (FakeJudge(), ""), "refuses": (FakeJudge(refusing), ""), "slow": (slow, ""),
              "dead": (FakeJudge(), f"grpc://127.0.0.1:{free_port()}")}  # fmt: skip
    async with AsyncExitStack() as services:
        urls = {}
        for name, (judge, address) in judges.items():
            deadline = 600.0 if name == "well" else 2.0
            store = str(tmp_path / f"{name}.sqlite3")
            service = served(judge, [PROBLEM], address, session_store=store, deadline_seconds=deadline)
            urls[name] = (await services.enter_async_context(service)).address
        asked = {"urls": urls, "instance": INSTANCE, "content": ECHO, "timeout": 120.0}
        found = await ask_script(gen_cpu, "reward/torch_client_side.py", asked)
    wanted = {"well": [200, 1.0], "refuses": [422, None], "slow": [503, None], "dead": [503, None]}
    assert found == {name: dict.fromkeys(WAYS, reward) for name, reward in wanted.items()}
