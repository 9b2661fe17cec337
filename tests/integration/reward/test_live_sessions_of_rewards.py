"""Sessions with the action live: a contained interpreter keeps their state, and its loss is told, never a reward."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from builders.judge.sandbox import service
from builders.ports import free_port
from builders.redis_server import redis_server
from builders.reward.service import TESTS, post, served
from builders.tls_directories import TlsDirectory, authority

from evalrun_client.fake_judge import FakeJudge
from evalrun_executor.api import SandboxInfo
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.sessions.live import LiveInterpreters, NoInterpreterError
from evalrun_reward.settings import RewardSettings
from evalrun_runtime.connections.tls_files import TlsFiles

LIVE = ("--max-sessions", "2")
START = {"instance_hash": 7, "ground_truth": TESTS, "action": "live"}


def finds_the_whole_text(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
    """Stand in for a judge: the answer is the program, and each fails when it runs by itself."""
    text = request.submission.text
    status = judge_pb2.FINAL_STATUS_RUNTIME_ERROR if text else judge_pb2.FINAL_STATUS_EMPTY_OUTPUT
    return judge_pb2.Verdict(judged=True, final_status=status, pass_ratio=0.0, code=text)


@asynccontextmanager
async def sandbox(*flags: str) -> AsyncIterator[str]:
    """The address of a sandbox; skips where this machine cannot contain interpreters."""
    async with service("--slots", "2", *flags) as (address, _):
        async with aiohttp.ClientSession() as http, http.get(f"{address}/v1/info") as answer:
            info = SandboxInfo(**await answer.json())
        if info.level != "full":
            pytest.skip(f"this machine reaches level {info.level}: {'; '.join(info.missing)}")
        yield address


@asynccontextmanager
async def sandbox_with_tls(directory: Path) -> AsyncIterator[str]:
    """The https address of a sandbox with live sessions; skips as `sandbox` does."""
    async with sandbox(*LIVE):
        pass
    async with service("--slots", "2", *LIVE, "--tls-folder", str(directory)) as (address, _):
        yield address


class LiveSession:
    """A session, and what its actions get."""

    def __init__(self, address: str, sid: int) -> None:
        self._address = address
        self._sid = sid

    async def act(self, content: str, **more: object) -> tuple[int, str]:
        """Take an action; returns the status and the message."""
        body = {"sid": self._sid, "content": content, **more}
        status, answer, _ = await post(self._address, "/process_action", body)
        return status, answer["content"] if status == 200 else answer["message"]

    async def reward(self) -> tuple[int, float]:
        """Ask for the reward."""
        status, answer, _ = await post(self._address, "/compute_reward", {"sid": self._sid})
        return status, answer["reward"]


@asynccontextmanager
async def session(store: Path, sandboxes: list[str]) -> AsyncIterator["LiveSession"]:
    """A session of the action live."""
    judge = FakeJudge(finds_the_whole_text)
    async with served(judge, session_store=str(store / "s.sqlite3"), live_sandbox=sandboxes) as it:
        status, answer, _ = await post(it.address, "/start_instance", START)
        assert status == 200, answer

        yield LiveSession(it.address, int(answer["sid"]))


async def test_an_interpreter_keeps_variables_between_actions(tmp_path: Path) -> None:
    async with sandbox(*LIVE) as address, session(tmp_path, [address]) as it:
        assert await it.act("x = 20\nprint('set')") == (200, "stdout:\nset")
        assert await it.act("x += 1") == (200, "[it printed nothing]")
        assert await it.act("x") == (200, "result:\n21")
        status, shown = await it.act("1 / 0")
        assert status == 200
        assert "ZeroDivisionError" in shown
        # Asked again, an action is not executed again.
        assert await it.act("x += 1", turn=1) == (200, "[it printed nothing]")
        assert await it.act("x + 0") == (200, "result:\n21")
        assert await it.reward() == (200, 0.0)


async def test_an_interpreter_is_used_through_every_replica_that_shares_a_redis(tmp_path: Path) -> None:
    async with sandbox(*LIVE) as address, redis_server(tmp_path) as redis:
        settings: dict[str, Any] = {"session_store": redis.url, "live_sandbox": [address]}
        async with (
            served(FakeJudge(finds_the_whole_text), **settings) as first,
            served(FakeJudge(finds_the_whole_text), **settings) as second,
        ):
            status, answer, _ = await post(first.address, "/start_instance", START)
            assert status == 200, answer
            one, other = (LiveSession(each.address, int(answer["sid"])) for each in (first, second))
            assert await one.act("x = 20") == (200, "[it printed nothing]")
            assert await other.act("x += 1\nprint(x)") == (200, "stdout:\n21")
            # Asked again elsewhere, an action is not executed again.
            assert await one.act("x += 1\nprint(x)", turn=1) == (200, "stdout:\n21")
            assert "the interpreter ended" in (await one.act("import os\nos._exit(3)"))[1]
            assert "NameError" in (await other.act("x"))[1]
            assert await other.reward() == (200, 0.0)


async def test_an_interpreter_behind_tls_is_used_by_the_name_in_its_certificate(tmp_path: Path) -> None:
    own = authority()
    server = TlsDirectory(tmp_path / "server").write("server", own)
    caller = TlsDirectory(tmp_path / "caller").write("client", own)
    stranger = TlsDirectory(tmp_path / "stranger").write("client", authority(), own)
    async with sandbox_with_tls(server) as address, AsyncExitStack() as stack:

        def client(directory: Path, name: str) -> LiveInterpreters:
            made = LiveInterpreters([address], None, TlsFiles(directory), name, sleep=no_pause)
            stack.push_async_callback(made.close)
            return made

        interpreters = client(caller, "sandbox.ns.svc")
        opened = await interpreters.open()
        assert (await interpreters.execute(opened, "6 * 7")).result == "42"
        with pytest.raises(NoInterpreterError, match=r"must name the host"):
            await client(caller, "other.ns.svc").open()
        with pytest.raises(NoInterpreterError, match=r"the caller's certificate"):
            await client(stranger, "sandbox.ns.svc").open()


async def no_pause(_seconds: float) -> None:
    return None


async def test_killed_interpreter_is_reported_to_the_model_and_the_session_continues(tmp_path: Path) -> None:
    async with sandbox(*LIVE) as address, session(tmp_path, [address]) as it:
        assert (await it.act("x = 1"))[0] == 200
        status, shown = await it.act("import os\nos._exit(3)")
        assert status == 200
        assert "the interpreter ended" in shown
        status, shown = await it.act("x")
        assert status == 200
        assert "NameError" in shown
        assert await it.act("2 + 2") == (200, "result:\n4")


async def test_lost_sandbox_is_reported_and_another_sandbox_continues(tmp_path: Path) -> None:
    async with sandbox(*LIVE) as second:
        async with sandbox(*LIVE) as first:
            opened = session(tmp_path, [first, second])
            it = await opened.__aenter__()
            assert (await it.act("x = 1"))[0] == 200
        status, shown = await it.act("print(2)")
        assert status == 200
        assert "its sandbox does not answer" in shown
        assert "variables and imports of earlier actions are gone" in shown
        assert shown.endswith("stdout:\n2")
        await opened.__aexit__(None, None, None)


async def test_action_without_any_sandbox_is_503_with_the_reason(tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with session(tmp_path, [dead]) as it:
        status, message = await it.act("x = 1")
        assert status == 503
        assert f"no live interpreter: {dead} does not answer" in message


async def test_sandbox_without_live_sessions_is_503_with_the_flag(tmp_path: Path) -> None:
    async with sandbox() as address, session(tmp_path, [address]) as it:
        status, message = await it.act("x = 1")
        assert status == 503
        assert "start it with --max-sessions" in message


@pytest.mark.parametrize(
    ("settings", "more", "says"),
    [
        ({}, {}, "start the service with --live-sandbox URL"),
        ({"live_sandbox": ["http://127.0.0.1:9"]}, {"language": "cpp"}, "live runs Python, not cpp"),
    ],
)
async def test_unusable_live_action_is_refused_at_the_start_of_the_session(
    settings: dict[str, Any], more: dict[str, Any], says: str, tmp_path: Path
) -> None:
    async with served(FakeJudge(), session_store=str(tmp_path / "s.sqlite3"), **settings) as it:
        status, answer, _ = await post(it.address, "/start_instance", START | more)
        assert status == 400
        assert says in answer["message"]


def test_tls_name_beside_a_plain_text_sandbox_is_refused() -> None:
    with pytest.raises(ValueError, match=r"live_sandbox: http://b is plain text .* write https://"):
        RewardSettings(judge="grpc://j:1", live_sandbox=["https://a", "http://b"], live_sandbox_tls_name="a")
