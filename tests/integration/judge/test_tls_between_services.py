"""Mutual TLS between real processes: the whole chain judges, strangers get nothing, certificates change in mid-run."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
from pathlib import Path

import aiohttp
import grpc
import pytest
from builders.aggregator.process import running, write_run_config
from builders.judge.services import services
from builders.judge.steady_load import echo_request, steady_load
from builders.tls_directories import TlsDirectory, authority, shown

from evalrun_cli.local.processes import ServiceProcess
from evalrun_client.judge_client import GrpcJudge, JudgeLostError
from evalrun_judge.sandboxes import SandboxUnreachableError
from evalrun_judge.sandboxes.evalrun_http import EvalrunSandbox
from evalrun_operator.aggregator_client import AggregatorError, GrpcAggregators
from evalrun_operator.resources.run_tokens import LedgerAccess
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.tls_files import TlsFiles


async def test_certificates_change_while_the_judge_works_and_no_verdict_is_lost(tmp_path: Path) -> None:
    old, new = authority(), authority()
    parts = {"server": TlsDirectory(tmp_path / "sandbox"), "gateway": TlsDirectory(tmp_path / "gateway")}
    parts["client"] = TlsDirectory(tmp_path / "client")
    sandbox_tls, gateway_tls, client_tls = (directory.write(part, old) for part, directory in parts.items())

    async with services(
        tmp_path,
        sandbox_arguments=["--slots=2", f"--tls-folder={sandbox_tls}"],
        judge_arguments=[f"--tls-folder={gateway_tls}", f"--sandbox-tls-folder={gateway_tls}"],
    ) as (judge, (sandbox,)):
        assert sandbox.address.startswith("https://")
        client = GrpcJudge(judge.address, tls=TlsFiles(client_tls))

        async with steady_load(client) as judged:
            await judged(5)
            # All learn the new authority, then all show its certificates, then the old authority goes.
            for step, (issued, *trusted) in enumerate(((old, old, new), (new, new, old), (new, new)), start=1):
                for part, directory in parts.items():
                    directory.write(part, issued, *trusted)
                while not all_have_read(tmp_path, step):
                    for server in (sandbox, judge):  # at a handshake it looks at its files, if it last did a second ago
                        await shown(server.address)
                    await asyncio.sleep(0.1)
                await judged(5)
        stale = GrpcJudge(judge.address, tls=TlsFiles(TlsDirectory(tmp_path / "stale").write("client", old, new)))
        assert isinstance(await stale.judge(echo_request()), judge_pb2.StreamFailure)
        await stale.close()


def all_have_read(directory: Path, times: int) -> bool:
    """Return whether the gateway, which is server and client, and the sandbox have read each exchange."""
    logs = {"judge.log": 2 * times, "sandbox-0.log": times}
    return all((directory / log).read_text().count("read again") >= wanted for log, wanted in logs.items())


async def test_without_a_certificate_no_port_answers(tmp_path: Path) -> None:
    issued = authority()
    directory = TlsDirectory(tmp_path / "gateway").write("gateway", issued)
    write_run_config(tmp_path)
    async with (
        services(
            tmp_path,
            sandbox_arguments=["--slots=1", f"--tls-folder={directory}"],
            judge_arguments=[f"--tls-folder={directory}", f"--sandbox-tls-folder={directory}"],
        ) as (judge, (sandbox,)),
        running(
            f"--work-order={tmp_path / 'work_order.json'}", f"--ledger={tmp_path / 'l.db'}",
            f"--judge={judge.address}", f"--judge-tls-folder={directory}", f"--tls-folder={directory}",
        ) as aggregator,
    ):  # fmt: skip
        operators, other = GrpcAggregators(timeout=30), authority()
        mine, new = issued.by_part["client"], other.by_part["client"]
        await operators.status(aggregator.address, LedgerAccess("any", (mine.chain, mine.key, issued.authority)))
        for certificate in (None, (new.chain, new.key, issued.authority), ("", "", "")):
            with pytest.raises(AggregatorError, match="certificate"):  # and not "Socket closed" alone
                await operators.status(aggregator.address, LedgerAccess("any", certificate))
        await operators.close()
        for stranger in (None, TlsFiles(TlsDirectory(tmp_path / "other").write("client", other, issued))):
            async with open_channel(aggregator.address, stranger) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await ledger_pb2_grpc.LedgerServiceStub(channel).GetStatus(
                        ledger_pb2.GetStatusRequest(), timeout=30
                    )
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            judge_of_a_stranger = GrpcJudge(judge.address, tls=stranger)
            failure = await judge_of_a_stranger.judge(echo_request())
            assert isinstance(failure, judge_pb2.StreamFailure)
            assert "in the server's ca.crt" in failure.message
            with pytest.raises(JudgeLostError, match=r"in the server's ca\.crt"):
                await judge_of_a_stranger.describe(30)
            await judge_of_a_stranger.close()
            if stranger is not None:
                sandbox_of_a_stranger = EvalrunSandbox(sandbox.address, tls=stranger)
                with pytest.raises(SandboxUnreachableError, match=r"in the server's ca\.crt"):
                    await sandbox_of_a_stranger.describe()
                await sandbox_of_a_stranger.close()
            context = None if stranger is None else stranger.current.client_context
            async with aiohttp.ClientSession() as session:
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await session.get(f"{sandbox.address if context else plain(sandbox)}/v1/info", ssl=context or True)


def plain(service: ServiceProcess) -> str:
    return service.address.replace("https://", "http://")
