"""Certificates and their authority are renewed in mid-run: the real aggregator goes on without a restart, towards the
judge and towards its callers."""

import asyncio
import ssl
from pathlib import Path

from builders.aggregator.process import Worker, read_results, running, write_run_config
from builders.tls_directories import TlsDirectory, authority, shown

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.connections.tls_files import TlsFiles

PROBLEMS = 12


async def test_an_aggregator_takes_renewed_certificates_in_mid_run(tmp_path: Path) -> None:
    old, new = authority(), authority()
    directories = {name: TlsDirectory(tmp_path / name) for name in ("judge", "aggregator", "generator")}
    parts = {"judge": "gateway", "aggregator": "gateway", "generator": "client"}
    judge_tls, own_tls, generator_tls = (directory.write(parts[name], old) for name, directory in directories.items())
    fake = FakeJudge(delay=0.3)
    judge = FakeJudgeServer(fake, tls_folder=judge_tls)
    address = await judge.start()
    write_run_config(tmp_path, problems=PROBLEMS)
    async with running(
        f"--work-order={tmp_path / 'work_order.json'}", f"--ledger={tmp_path / 'ledger.sqlite3'}",
        f"--judge={address}", f"--judge-tls-folder={own_tls}", f"--tls-folder={own_tls}", "--judge-stream-seconds=0.2",
    ) as aggregator:  # fmt: skip
        worker = Worker(aggregator.address, tls=TlsFiles(generator_tls))

        async def judged() -> None:
            """Have two answers judged, one after the other: the second needs a stream that begins after the first's."""
            streams = fake.streams
            for _ in range(2):
                generated = await worker.submit((await worker.take(1)).items)
                assert generated == 1
                done = (await worker.status()).datasets[0].generated
                async with asyncio.timeout(60):
                    while (await worker.status()).datasets[0].judged < done:  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.05)
            assert fake.streams > streams

        await judged()
        # All learn the new authority, then all show its certificates, then the old authority goes.
        for issued, *trusted in ((old, old, new), (new, new, old), (new, new)):
            for name, directory in directories.items():
                directory.write(parts[name], issued, *trusted)
            own = ssl.PEM_cert_to_DER_cert((own_tls / "tls.crt").read_text())
            async with asyncio.timeout(60):
                while await shown(aggregator.address) != own:  # noqa: ASYNC110 - a handshake makes it look
                    await asyncio.sleep(0.05)
            await judged()
        await worker.work()
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        assert (status.datasets[0].judged, status.datasets[0].not_judged) == (PROBLEMS, 0)
        assert aggregator.process.returncode is None
        await worker.close()
    await judge.stop()
    assert len(read_results(tmp_path / "out")) == PROBLEMS
