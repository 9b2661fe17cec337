"""Where sandboxes are found, and what becomes of requests while they come and go."""

import asyncio
import re
import socket

import pytest
from builders.judge.gateway import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.discovery import (
    DiscoveryError,
    DnsDiscovery,
    NoDnsError,
    StdinDiscovery,
    host_and_port,
    parse_service,
    system_lookup,
)
from evalrun_judge.pool.endpoint_slices import ApiServer
from evalrun_judge.pool.slot_queue import NoSandboxError, UnresolvedSandboxesError
from evalrun_judge.sandboxes import Backend, SandboxUnreachableError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo


class Answers:
    """A scripted resolver that repeats its last answer."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Lines:
    """A stdin of some lines, and then its end."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    async def __call__(self) -> str:
        return self.lines.pop(0) if self.lines else ""


async def test_sandbox_read_from_stdin_is_kept() -> None:
    discovery = StdinDiscovery(Lines("https://localhost:8080", "https://other:1"), scheme="https")
    for _ in range(2):
        assert await discovery.find() == {"https://localhost:8080"}
    assert discovery.server_name == "localhost"


@pytest.mark.parametrize(("line", "scheme"), [("", "http"), ("localhost:8080", "http"), ("http://[::1]:1", "https")])
async def test_stdin_line_without_a_sandbox_url_is_refused(line: str, scheme: str) -> None:
    discovery = StdinDiscovery(Lines(line, f"{scheme}://later:1"), scheme=scheme)
    for _ in range(2):
        with pytest.raises(DiscoveryError, match=f"{scheme}://host:port was expected, not '{re.escape(line)}'"):
            await discovery.find()


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        (["10.0.0.1", "10.0.0.2", "10.0.0.1"], {"http://10.0.0.1:8080", "http://10.0.0.2:8080"}),
        (["fd00::1", "fd00::2"], {"http://[fd00::1]:8080", "http://[fd00::2]:8080"}),
        (["fd00::1", "10.0.0.1"], {"http://10.0.0.1:8080"}),  # one pod with an address of either family
    ],
)
async def test_dns_discovery_finds_every_address_of_the_name(addresses: list[str], found: set[str]) -> None:
    assert await DnsDiscovery("dns:///sandbox.ns.svc:8080", lookup=Answers(addresses)).find() == found


@pytest.mark.parametrize("answer", [socket.gaierror(-2, "Name or service not known"), []])
async def test_dns_without_an_address_raises_with_the_target(answer: list[str] | OSError) -> None:
    with pytest.raises(DiscoveryError, match=r"dns:///sandbox:8080"):
        await DnsDiscovery("dns:///sandbox:8080", lookup=Answers(answer)).find()


async def test_find_resolver_without_answer_raises_no_dns_error() -> None:
    answers = Answers(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
    with pytest.raises(NoDnsError, match=r"dns:///sandbox:8080: .*Temporary failure"):
        await DnsDiscovery("dns:///sandbox:8080", lookup=answers).find()


async def _a_slow_resolver_is_asked_once() -> None:
    asked: list[str] = []

    async def lookup(host: str, _port: int) -> list[str]:
        asked.append(host)
        await asyncio.sleep(12)
        return ["10.0.0.1"]

    discovery = DnsDiscovery("dns:///sandbox:8080", lookup=lookup)
    for _ in range(2):
        with pytest.raises(NoDnsError, match="within 5 s"):
            await discovery.find()
    assert await discovery.find() == {"http://10.0.0.1:8080"}
    assert asked == ["sandbox"]
    await discovery.close()


def test_find_slow_resolver_raises_in_time_and_keeps_one_lookup() -> None:
    run_virtually(_a_slow_resolver_is_asked_once())


async def _a_request_without_dns(answer: OSError) -> tuple[NoSandboxError, float]:
    """Return how a request ends whose sandboxes cannot be looked up, and after how many seconds."""
    loop = asyncio.get_running_loop()
    discovery = DnsDiscovery("dns:///sandbox:80", lookup=Answers(answer))
    pool = make_pool([], Time(), clock=loop.time, sleep=asyncio.sleep, discoveries=[discovery])
    began = loop.time()
    pool.start()
    with pytest.raises(NoSandboxError) as raised:
        await pool.run(REQUEST)
    seconds = loop.time() - began
    with pytest.raises(type(raised.value)):  # the next request need not wait
        await pool.run(REQUEST)
    await pool.close()
    return raised.value, seconds


def test_pool_without_dns_refuses_by_type_within_15_seconds() -> None:
    error, seconds = run_virtually(_a_request_without_dns(socket.gaierror(socket.EAI_AGAIN, "any wording")))
    assert isinstance(error, UnresolvedSandboxesError)
    assert seconds <= 15
    error, seconds = run_virtually(_a_request_without_dns(socket.gaierror(socket.EAI_NONAME, "any wording")))
    assert type(error) is NoSandboxError
    assert seconds >= 15


async def test_system_lookup_resolves_localhost() -> None:
    assert "127.0.0.1" in await system_lookup("localhost", 80)


@pytest.mark.parametrize(
    ("target", "found"),
    [("dns:///a.b.svc:8080", ("a.b.svc", 8080)), ("dns://a:1", ("a", 1)), ("dns:///[::1]:80", ("::1", 80))],
)
def test_host_and_port_parses_dns_targets(target: str, found: tuple[str, int]) -> None:
    assert host_and_port(target) == found


@pytest.mark.parametrize("target", ["dns:///a", "dns:///", "dns:///:80", "dns:///a:80/x", "a:80"])
def test_target_without_host_or_port_is_refused_with_the_form(target: str) -> None:
    with pytest.raises(ValueError, match="dns:///host:port"):
        host_and_port(target)


def test_parse_service_reads_namespace_service_and_port_and_refuses_other_forms() -> None:
    assert parse_service("k8s:///judging/sandbox:http") == ("judging", "sandbox", "http")
    for wrong in ("k8s:///sandbox:80", "k8s:///a/b", "k8s:///a/b:80/c", "dns:///a:80"):
        with pytest.raises(ValueError, match="k8s:///namespace/service:port"):
            parse_service(wrong)
    with pytest.raises(ValueError, match="dns:///host:port"):
        ApiServer.from_pod({})


REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"1"])


async def test_error_in_discovery_or_watching_is_logged_and_both_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mistakes = [TypeError("watching"), TypeError("discovering")]

    class Found(FakeSandbox):
        async def describe(self) -> Backend:
            if mistakes:
                raise mistakes.pop()
            return await super().describe()

    async def lookup(_host: str, _port: int) -> list[str]:
        if len(mistakes) > 1:
            raise mistakes.pop()
        return ["10.0.0.1"]

    pool = make_pool(
        [], Time(), discoveries=[DnsDiscovery("dns:///sandbox:80", lookup=lookup)], connect=lambda _url, _name: Found()
    )
    pool.start()
    assert await pool.run(REQUEST) == echo(REQUEST)
    assert "TypeError: discovering" in caplog.text
    assert "TypeError: watching" in caplog.text
    await pool.close()


async def _pods_come_and_go() -> None:
    """Pods of 0.3 s a program; their set changes every 5 s, and a lookup fails in between."""
    pods: dict[str, FakeSandbox] = {}

    def connect(url: str, _name: str) -> FakeSandbox:
        async def behaviour(request: RunRequest) -> RunReply:
            await asyncio.sleep(0.3)
            if pods[url].down is not None:  # killed while it ran
                raise SandboxUnreachableError("reset")
            return echo(request)

        pods[url] = FakeSandbox(behaviour, address=url, slots=2)
        return pods[url]

    a, b, c = "http://10.0.0.1:80", "http://10.0.0.2:80", "http://10.0.0.3:80"
    lookup = Answers(["10.0.0.1", "10.0.0.2"], OSError("no answer"), ["10.0.0.2", "10.0.0.3"], ["10.0.0.3"])
    loop = asyncio.get_running_loop()
    pool = make_pool(
        [],
        Time(),
        clock=loop.time,
        sleep=asyncio.sleep,
        discoveries=[DnsDiscovery("dns:///sandbox:80", lookup=lookup)],
        connect=connect,
    )
    pool.start()
    await pool.changed.wait()
    replies = [asyncio.create_task(pool.run(REQUEST)) for _ in range(200)]
    await asyncio.sleep(12)  # a is gone from the name
    given = len(pods[a].requests)
    assert pool.slots == 4
    pods[b].down = SandboxUnreachableError("connection refused")  # killed before its name is taken away
    assert [reply.runs[0].stdout for reply in await asyncio.gather(*replies)] == [b"1"] * 200
    assert len(pods[a].requests) == given
    assert min(given, len(pods[b].requests), len(pods[c].requests)) > 20
    assert pool.in_flight == 0
    await pool.close()


def test_added_and_removed_pods_lose_no_request() -> None:
    run_virtually(_pods_come_and_go())


async def _removed_pod_finishes_its_running_programs() -> None:
    closed: list[str] = []

    class Closing(FakeSandbox):
        async def close(self) -> None:
            closed.append(self.address)

    async def slow(request: RunRequest) -> RunReply:
        await asyncio.sleep(60)
        return echo(request)

    loop = asyncio.get_running_loop()
    pool = make_pool(
        [],
        Time(),
        clock=loop.time,
        sleep=asyncio.sleep,
        discoveries=[DnsDiscovery("dns:///sandbox:80", lookup=Answers(["10.0.0.1"], ["10.0.0.2"]))],
        connect=lambda url, _name: Closing(slow, address=url),
    )
    pool.start()
    running = asyncio.create_task(pool.run(REQUEST))
    await asyncio.sleep(30)
    assert closed == []
    assert (await running).runs[0].stdout == b"1"
    await asyncio.sleep(1)
    assert closed == ["http://10.0.0.1:80"]
    await pool.close()


def test_removed_pod_finishes_its_running_programs() -> None:
    run_virtually(_removed_pod_finishes_its_running_programs())
