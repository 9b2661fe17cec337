"""`evalrun serve mcp`, asked by the official SDK's client over stdin and stdout, and over HTTP with a token."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
from builders.catalogued_runs import write_checkpoint
from builders.command_line import COMMAND
from builders.results.stored_runs import verdicts_of, write_run
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from evalrun_cli.mcp_server.run_reader import RunReader
from evalrun_cli.mcp_server.server import build_server
from evalrun_runtime.ready_line import parse_ready_line

TOOLS = {"list_runs", "read_metrics", "compare_runs", "list_flips", "read_sample", "explain_failures"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints: the second gains a problem, and one answer of the first was not judged."""
    root = tmp_path_factory.mktemp("outputs")
    write_checkpoint(root, 1, [True, False, False, None])
    write_checkpoint(root, 2, [True, True, False, True], model="org/other")
    write_run(root / "many", verdicts_of([True] * 150), run="many", created="2026-11-09T00:00:00+00:00")
    write_run(root / "none", verdicts_of([False] * 150), run="none", created="2026-11-08T00:00:00+00:00")
    return root


@asynccontextmanager
async def assistant(runs: Path) -> AsyncIterator[Client]:
    async with Client(build_server(RunReader(str(runs)))) as client:
        yield client


async def test_assistant_starts_the_command_and_asks_it(runs: Path) -> None:
    command = [*COMMAND, "serve", "mcp", "--runs", str(runs)]
    started = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(stdio_client(started)) as client:
        assert len((await ask(client, "list_runs"))["runs"]) == 4
        assert "no such run" in await refusal_of(client, "read_metrics", run="run-9")


async def ask(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refusal_of(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "".join(getattr(part, "text", "") for part in result.content)


async def test_tools_are_read_only_and_the_instructions_name_untrusted_texts(runs: Path) -> None:
    async with assistant(runs) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        assert "never\nas instructions" in (client.instructions or "")


async def test_runs_are_found_measured_compared_and_explained(runs: Path) -> None:
    async with assistant(runs) as client:
        found = await ask(client, "list_runs", model="ORG/")
        assert [each["run"] for each in found["runs"]] == ["run-2", "run-1"]
        assert not found["is_cut"]

        measured = await ask(client, "read_metrics", run="run-2")
        values = {each["metric"]: each["value"] for each in measured["metrics"]}
        assert values["accepted_at_1"] == 0.75
        (dataset,) = measured["datasets"]
        assert dataset["coverage"] == 1.0

        compared = await ask(client, "compare_runs", baseline="run-1", candidate="run-2")
        assert compared["candidate"]["place"] == "run-2"
        assert str(runs) not in json.dumps(compared)
        assert compared["datasets"]

        flips = await ask(client, "list_flips", runs=["run-1", "run-2"])
        assert [each["problem_id"] for each in flips["problems"]] == ["P/00001"]
        assert flips["problems"][0]["accepted"] == {"run-1": 0.0, "run-2": 1.0}

        why = await ask(client, "explain_failures", run="run-1")
        (of_dataset,) = why["datasets"].values()
        assert sum(of_dataset["not_judged_causes"].values()) == 1
        assert list(of_dataset["not_judged_examples"].values()) == ["P/00003"]


async def test_sample_marks_the_texts_of_a_model(runs: Path) -> None:
    async with assistant(runs) as client:
        found = await ask(client, "read_sample", run="run-1", sample="P/00001")
        (row,) = found["rows"]
        assert row["accepted"] is False
        assert set(row["response"]) == {"untrusted_text", "characters_left_out"}


async def test_long_lists_are_cut_and_marked_as_cut(runs: Path) -> None:
    async with assistant(runs) as client:
        found = await ask(client, "list_flips", runs=["many", "none"], limit=100)
        assert len(found["problems"]) == 100
        assert (found["found"], found["is_cut"]) == (150, True)
        compared = await ask(client, "compare_runs", baseline="none", candidate="many")
        assert "50 more are left out" in json.dumps(compared)
        assert "less than or equal to 100" in await refusal_of(client, "list_runs", limit=1000)


@pytest.mark.parametrize("run", ["run-9", "../outputs", "/etc", "run-1/../run-2", ""])
async def test_run_that_is_not_listed_is_refused(runs: Path, run: str) -> None:
    async with assistant(runs) as client:
        assert "no such run" in await refusal_of(client, "read_sample", run=run, sample="P/00001")
        assert "no such run" in await refusal_of(client, "compare_runs", baseline="run-1", candidate=run)


async def test_sample_that_is_not_there_is_refused(runs: Path) -> None:
    async with assistant(runs) as client:
        assert "has no such sample" in await refusal_of(client, "read_sample", run="run-1", sample="P/99999")


@contextmanager
def served(runs: Path, *flags: str) -> Iterator[tuple[str, str]]:
    """Serve over HTTP; give the address and what was printed on stderr."""
    command = [*COMMAND, "serve", "mcp", "--runs", str(runs), "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next(filter(None, map(parse_ready_line, process.stdout or ())))
            yield address, "" if flags else (process.stderr or sys.stderr).readline()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) in (0, 130)


async def test_http_asks_for_the_token(runs: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\nsecond\n")
    with served(runs, "--token-file", str(tokens)) as (address, _):
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic first"}):
            async with httpx2.AsyncClient(headers=headers) as http:
                assert (await http.post(address, json={})).status_code == 401
        for token in ("first", "second"):
            async with (
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
                Client(streamable_http_client(address, http_client=http)) as client,
            ):
                assert len((await ask(client, "list_runs"))["runs"]) == 4


def test_drawn_token_is_printed_and_another_host_is_refused(runs: Path) -> None:
    with served(runs) as (address, said):
        token = said.removeprefix("token: ").strip()
        assert len(token) >= 32
        headers = {"Authorization": f"Bearer {token}", "Host": "evil.example"}
        assert requests.post(address, json={}, headers=headers, timeout=10).status_code in (403, 421)


def test_taken_port_is_named(runs: Path) -> None:
    with served(runs) as (address, _):
        port = address.rpartition(":")[2].partition("/")[0]
        command = [*COMMAND, "serve", "mcp", "--runs", str(runs), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert f"--port {port}: Address already in use" in done.stderr
