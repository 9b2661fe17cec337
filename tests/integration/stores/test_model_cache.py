"""Pods that start together fetch a model of a bucket once, also if the one that fetches is killed."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders.s3_server import S3Server

CONFIG, WEIGHTS = b'{"model_type": "qwen2"}', os.urandom(300_000)


class GatedProxy:
    """Passes a pod's connections on to the store; a request for weights waits until the gate is open."""

    def __init__(self, target: int, gate: asyncio.Event) -> None:
        self._target = target
        self._gate = gate
        self.asked_for_weights = False

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        yield int(server.sockets[0].getsockname()[1])
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onwards = await asyncio.open_connection("127.0.0.1", self._target)
        back = asyncio.create_task(copy(there, writer))
        try:
            while data := await reader.read(65536):
                if b"GET /results/coder/model.safetensors" in data:
                    self.asked_for_weights = True
                    await self._gate.wait()
                onwards.write(data)
                await onwards.drain()
        except ConnectionError:
            pass  # the client was killed
        onwards.close()
        await asyncio.wait([back])


@dataclass(frozen=True)
class Pod:
    """A process that fetches the model to a directory of its own."""

    proxy: GatedProxy
    process: asyncio.subprocess.Process
    directory: Path
    log: Path

    def waits(self) -> bool:
        return "waiting until" in self.log.read_text()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def until(check: Callable[[], bool]) -> None:
    while True:  # the test's time limit bounds it
        if check():
            return
        await asyncio.sleep(0.05)


@pytest.mark.timeout(600)  # four processes that import a bucket's client
async def test_a_model_is_fetched_once_by_pods_that_start_together_and_again_after_a_kill(
    tmp_path: Path, s3: S3Server
) -> None:
    source = s3.directory / "results" / "coder"
    source.mkdir()
    (source / "config.json").write_bytes(CONFIG)
    (source / "model.safetensors").write_bytes(WEIGHTS)
    gate, cache = asyncio.Event(), tmp_path / "claim" / "checkpoints"
    async with AsyncExitStack() as running:

        async def started(name: str) -> Pod:
            proxy, directory, log = GatedProxy(s3.port, gate), tmp_path / name, tmp_path / f"{name}.log"
            port = await running.enter_async_context(proxy.listening())
            with log.open("wb") as file:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "evalrun_data.checkpoint", "--cache", str(cache),
                    "s3://results/coder", str(directory),
                    stderr=file, env={**os.environ, **s3.environment(port=port)},
                )  # fmt: skip
            return Pod(proxy, process, directory, log)

        first = await started("first")
        await until(lambda: first.proxy.asked_for_weights)
        second, third = await started("second"), await started("third")
        await until(lambda: second.waits() and third.waits())
        assert not second.proxy.asked_for_weights
        assert not third.proxy.asked_for_weights
        first.process.kill()  # with a half of the model on the claim
        await first.process.wait()
        await until(lambda: second.proxy.asked_for_weights or third.proxy.asked_for_weights)
        gate.set()
        assert [await pod.process.wait() for pod in (second, third)] == [0, 0]
        later = await started("later")
        assert await later.process.wait() == 0
    assert [pod.proxy.asked_for_weights for pod in (second, third, later)].count(True) == 1
    (model,) = {pod.directory.resolve() for pod in (second, third, later)}
    assert {path.name: path.read_bytes() for path in model.iterdir()} == {
        "config.json": CONFIG, "model.safetensors": WEIGHTS,
    }  # fmt: skip
    assert not list(cache.glob("*.part"))
    assert not first.directory.exists()
