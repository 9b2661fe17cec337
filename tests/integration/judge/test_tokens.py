"""Tokens between real processes: each opens its own hop alone, and is exchanged while requests are under way."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import aiohttp
import grpc
import pytest
from builders.aggregator.process import running, write_run_config
from builders.judge.services import services
from builders.judge.steady_load import steady_load, until

from evalrun_client.judge_client import GrpcJudge, JudgeRefusedError
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.bearer_tokens import BearerTokens, authorization
from evalrun_runtime.connections.grpc_channel import open_channel, token_metadata

HOPS = ("ledger", "operator", "gateway", "sandbox")


def write(file: Path, *tokens: str) -> Path:
    """Exchange a file of tokens as the kubelet does: whole, by a link or a rename."""
    new = file.with_suffix(".new")
    new.write_text("\n".join(tokens) + "\n")
    os.replace(new, file)  # noqa: PTH105 - the call that is whole or nothing
    return file


async def opens_sandbox(address: str, tokens: BearerTokens | None) -> bool:
    headers = authorization(tokens)
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{address}/v1/info") as answer:
        assert answer.status in (200, 401)
        return answer.status == 200


async def opens_gateway(address: str, tokens: BearerTokens | None) -> bool:
    judge = GrpcJudge(address, tokens)
    try:
        await judge.describe(30)
    except JudgeRefusedError:
        return False
    finally:
        await judge.close()
    return True


async def opens_ledger(address: str, tokens: BearerTokens | None, method: str) -> bool:
    async with open_channel(address) as channel:
        stub = ledger_pb2_grpc.LedgerServiceStub(channel)
        metadata = token_metadata(tokens)
        try:
            if method == "GetWork":
                await stub.GetWork(ledger_pb2.GetWorkRequest(worker_id="w", max_items=1), metadata=metadata)
            elif method == "EndRun":
                await stub.EndRun(ledger_pb2.EndRunRequest(), metadata=metadata)  # no reason: INVALID_ARGUMENT
            else:
                await stub.GetStatus(ledger_pb2.GetStatusRequest(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return False
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
    return True


async def test_token_of_a_part_opens_no_other_connection(tmp_path: Path) -> None:
    files = {hop: write(tmp_path / hop, f"{hop}-token") for hop in HOPS}
    write_run_config(tmp_path)
    async with (
        services(
            tmp_path,
            sandbox_arguments=["--slots=1", f"--token-file={files['sandbox']}"],
            judge_arguments=[f"--token-file={files['gateway']}", f"--sandbox-token-file={files['sandbox']}"],
        ) as (judge, (sandbox,)),
        running(
            f"--work-order={tmp_path / 'work_order.json'}", f"--ledger={tmp_path / 'l.db'}",
            f"--judge={judge.address}", f"--token-file={files['ledger']}",
            f"--operator-token-file={files['operator']}", f"--judge-token-file={files['gateway']}",
        ) as aggregator,
    ):  # fmt: skip
        opened = {
            (port, hop)
            for hop in (*HOPS, "other", None)
            for tokens in [None if hop is None else BearerTokens(f"{hop}-token")]
            for port, opens in {
                "sandbox": await opens_sandbox(sandbox.address, tokens),
                "gateway": await opens_gateway(judge.address, tokens),
                **{
                    f"ledger {method}": await opens_ledger(aggregator.address, tokens, method)
                    for method in ("GetWork", "GetStatus", "EndRun")
                },
            }.items()
            if opens
        }
    assert opened == {
        ("sandbox", "sandbox"), ("gateway", "gateway"), ("ledger GetWork", "ledger"),
        ("ledger GetStatus", "operator"), ("ledger EndRun", "operator"),
    }  # fmt: skip


async def test_tokens_are_exchanged_under_load_and_no_request_is_lost(tmp_path: Path) -> None:
    gateway, behind = write(tmp_path / "gateway", "old"), write(tmp_path / "behind", "old-behind")

    async with services(
        tmp_path,
        sandbox_arguments=["--slots=2", f"--token-file={behind}"],
        judge_arguments=[f"--token-file={gateway}", f"--sandbox-token-file={behind}"],
    ) as (judge, (sandbox,)):
        client = GrpcJudge(judge.address, BearerTokens(file=gateway))

        async with steady_load(client) as judged:
            await judged(5)
            # Servers first, then clients, then the old tokens go: each step once all have taken the last one.
            for step, order in enumerate((("old", "new"), ("new", "old"), ("new",)), start=1):
                write(gateway, *order)
                write(behind, *(f"{token}-behind" for token in order))
                await until(partial(exchanged, tmp_path / "judge.log", 2 * step))
                await until(partial(exchanged, tmp_path / "sandbox-0.log", step))
                await judged(5)
        for token, accepted in (("old", False), ("new", True)):
            assert await opens_gateway(judge.address, BearerTokens(token)) is accepted
            assert await opens_sandbox(sandbox.address, BearerTokens(f"{token}-behind")) is accepted


def exchanged(log: Path, times: int) -> bool:
    return log.read_text().count("read again") == times


@pytest.mark.parametrize("text", ["", "\n"])
async def test_a_service_does_not_start_with_an_empty_file_of_tokens(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evalrun_judge", "--sandbox=http://127.0.0.1:1", f"--token-file={file}",
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert f"{file}: it holds no token" in errors.decode()
    assert "Traceback" not in errors.decode()
