"""Frames come from a process beside hostile code: nonsense is an infra error, never a result."""

import asyncio
import socket

import pytest

from evalrun_sandbox.contained import frames
from evalrun_sandbox.errors import ExecutorLost
from evalrun_sandbox.frame_reader import FrameReader, parse_compiled, parse_run


def run_frame(index: int = 0, end: int = 0, code: int = 0, out: int = 2, texts: bytes = b"okerr") -> bytes:
    return frames.RUN_HEAD.pack(index, end, code, 0.5, 0.75, 2048, out) + texts


def test_a_result_is_read() -> None:
    index, run = parse_run(run_frame(index=1), 2, 100)
    assert (index, run.end, run.exit_code, run.stdout, run.stderr) == (1, "exited", 0, b"ok", b"err")
    assert (run.cpu_seconds, run.wall_seconds, run.peak_memory_mib) == (0.5, 0.75, 2)


def test_no_exit_code_is_none() -> None:
    assert parse_run(run_frame(end=1, code=frames.NO_EXIT_CODE), 1, 100)[1].exit_code is None


@pytest.mark.parametrize("payload", [
    b"", run_frame()[:20], run_frame(index=5), run_frame(end=9), run_frame(out=50), run_frame(out=6, texts=b"x"),
])  # fmt: skip
def test_a_result_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(ExecutorLost):
        parse_run(payload, 5, 100)


@pytest.mark.parametrize("payload", [b"", b"\x07" + bytes(8)])
def test_a_compilation_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(ExecutorLost):
        parse_compiled(payload)


async def test_frames_come_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
    reader = FrameReader(ours, 1000)
    data = frames.FRAME.pack(frames.FAULT, 3) + b"abc" + frames.FRAME.pack(frames.DONE, 0)

    async def feed() -> None:
        for byte in data:
            theirs.send(bytes([byte]))
            await asyncio.sleep(0)
        theirs.close()

    feeding = asyncio.create_task(feed())
    found = [await reader.next(5), await reader.next(5), await reader.next(5)]
    await feeding
    reader.close()
    assert found == [(frames.FAULT, b"abc"), (frames.DONE, b""), None]


@pytest.mark.parametrize(("data", "word"), [
    (frames.FRAME.pack(frames.RUN, 2**31), "announced"), (b"", "nothing"),
])  # fmt: skip
async def test_a_frame_without_bounds_or_end_is_an_infra_error(data: bytes, word: str) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
    reader = FrameReader(ours, 1000)
    theirs.send(data)
    with pytest.raises(ExecutorLost, match=word):
        await reader.next(0.01)
    reader.close()
    theirs.close()


def test_a_job_reads_back_as_it_was_written() -> None:
    job = frames.Job("stdio", "python", b"print(1)\xff", 1.5, 64, 1024, [3, 0, 2])
    blob = job.encode() + b"abc" + b"xy"
    read, offsets = frames.decode_job(lambda size, offset: blob[offset : offset + size])
    assert vars(read) == vars(job)
    assert [blob[at : at + size] for at, size in zip(offsets, read.sizes, strict=True)] == [b"abc", b"", b"xy"]
