"""Who is asked for an act of control, and what is said where nobody answers."""

from pathlib import Path

import grpc
import pytest

from evalrun_aggregator.control.access import access_path, read_access
from evalrun_aggregator.control.acts import Pause
from evalrun_aggregator.control.client import NoControlError, NotRunningError, control_ledger
from evalrun_aggregator.ledger.place import LedgerLock
from evalrun_runtime.atomic_files import write_atomically


async def ask(ledger: Path) -> None:
    await control_ledger(ledger, Pause(), patience_seconds=0.0, absent_seconds=0.0)


async def test_ask_ledger_without_a_live_owner_raises_not_running(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError):
        await ask(tmp_path / "never")
    with LedgerLock(tmp_path / "l"):
        pass
    with pytest.raises(NotRunningError):
        await ask(tmp_path / "l")


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"port": 1}', b"\xff"])
async def test_ask_owner_without_control_access_raises_no_control(content: bytes | None, tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    if content is not None:
        access_path(ledger).write_bytes(content)
    assert read_access(ledger) is None
    with LedgerLock(ledger), pytest.raises(NoControlError):
        await ask(ledger)


async def test_ask_owner_that_does_not_serve_the_act_raises_no_control(tmp_path: Path) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ledger = tmp_path / "l"
    access_path(ledger).write_text(f'{{"address": "grpc://127.0.0.1:{port}", "token": "t"}}')
    with LedgerLock(ledger), pytest.raises(NoControlError, match="UNIMPLEMENTED"):
        await ask(ledger)
    await server.stop(0)
    with LedgerLock(ledger), pytest.raises(NoControlError, match="UNAVAILABLE"):  # it lives, and serves nothing
        await ask(ledger)


def test_write_atomically_keeps_a_replaced_file_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    (tmp_path / ".secret.partial").write_text("left by a process that was killed")
    for content in (b"one", b"two"):
        write_atomically(path, content, 0o600)
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (content, 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
