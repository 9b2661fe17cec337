"""Frames come from a process beside hostile code: nonsense is an infra error, never a result."""

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from evalrun_executor.contained import frames
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.zygotes.frame_reader import FrameReader, RunRules, parse_compiled, parse_run

RULES = RunRules(inputs=5, output_bytes=100, time_seconds=1.0, memory_mib=64, resident_mib=76, own_kill_possible=False)


def run_frame(
    index: int = 0, stopped: int = 0, status: int = 0, out: int = 2, texts: bytes = b"okerr", cpu: float = 0.5
) -> bytes:
    return frames.RUN_HEAD.pack(index, stopped, status, cpu, 0.75, 2048, out) + texts


def test_a_result_is_read() -> None:
    index, run = parse_run(run_frame(index=1), RULES)
    assert (index, run.end, run.exit_code, run.stdout, run.stderr) == (1, "exited", 0, b"ok", b"err")
    assert (run.cpu_seconds, run.wall_seconds, run.peak_memory_mib) == (0.5, 0.75, 2)


def test_a_stopped_run_has_no_exit_code() -> None:
    _, run = parse_run(run_frame(stopped=frames.STOPPED_TIME, status=9), RULES)
    assert (run.end, run.exit_code) == ("timeout", None)


@pytest.mark.parametrize("payload", [
    b"", run_frame()[:20], run_frame(index=5), run_frame(stopped=9), run_frame(out=50), run_frame(out=6, texts=b"x"),
    run_frame(out=101, texts=bytes(101)), run_frame(texts=bytes(5000)),
    run_frame(status=0xFF), run_frame(status=-1), run_frame(status=0x137F), run_frame(status=1 << 16),
    run_frame(cpu=float("nan")), run_frame(cpu=-1.0), run_frame(cpu=float("inf")),
])  # fmt: skip
def test_a_result_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(ExecutorLost):
        parse_run(payload, RULES)


@pytest.mark.parametrize("payload", [b"", b"\x07" + bytes(8), b"\0" * 7 + b"\xf8\x7f"])
def test_a_compilation_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(ExecutorLost):
        parse_compiled(payload)


async def test_frames_are_read_whole_from_single_bytes() -> None:
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


def test_job_survives_encode_and_decode() -> None:
    job = frames.Job("stdio", "", b"print(1)\xff", 1.5, 64, 1024, [3, 0, 2])
    blob = job.encode() + b"abc" + b"xy"
    read, code, offsets = frames.decode_job(lambda size, offset: blob[offset : offset + size])
    assert vars(read) == vars(job)
    assert blob[code : code + read.code_size] == job.code
    assert [blob[at : at + size] for at, size in zip(offsets, read.sizes, strict=True)] == [b"abc", b"", b"xy"]


class RefusingSocket(socket.socket):
    """Refuses as many messages with descriptors as `refusals` says, as the kernel does with `code`."""

    refusals = 0
    code = errno.ETOOMANYREFS

    def sendmsg(self, *arguments: Any) -> int:
        if self.refusals > 0:
            self.refusals -= 1
            raise OSError(self.code, os.strerror(self.code))
        return super().sendmsg(*arguments)


def refusing_pair(refusals: int, code: int = errno.ETOOMANYREFS) -> tuple[RefusingSocket, socket.socket]:
    ours, theirs = socket.socketpair()
    refusing = RefusingSocket(fileno=ours.detach())
    refusing.refusals, refusing.code = refusals, code
    return refusing, theirs


def test_send_with_descriptors_refused_for_too_many_in_flight_waits_and_sends() -> None:
    ours, theirs = refusing_pair(refusals=3)
    pauses: list[float] = []
    with ours, theirs, Path(os.devnull).open("rb") as file:
        assert frames.send_with_descriptors(ours, b"frame", [file.fileno()], pauses.append) == 5
        message, received, _, _ = socket.recv_fds(theirs, 16, 1)
        assert (message, os.fstat(received[0]).st_rdev) == (b"frame", os.fstat(file.fileno()).st_rdev)
        os.close(received[0])
    assert len(pauses) == 3


@pytest.mark.parametrize(("refusals", "code"), [(1, errno.EPIPE), (10**9, errno.ETOOMANYREFS)])
def test_send_with_descriptors_other_or_lasting_refusal_raises(refusals: int, code: int) -> None:
    ours, theirs = refusing_pair(refusals, code)
    with ours, theirs, Path(os.devnull).open("rb") as file, pytest.raises(OSError) as raised:
        frames.send_with_descriptors(ours, b"frame", [file.fileno()], lambda _: None)
    assert raised.value.errno == code
