"""What is read out of the frames of several runners of one program."""

import signal

import pytest

from evalrun_executor.api import RunRequest
from evalrun_executor.contained import frames
from evalrun_judge.sandboxes.fusion_answer import NotTheHarnessError, read
from evalrun_judge.sandboxes.fusion_batch import Part
from evalrun_judge.sandboxes.stock_harness import ENDED, HELLO, STATUS

PART = Part(RunRequest("python", "pass", [b"", b""]), range(2), b"n" * 32)
COMPILED = frames.COMPILED, frames.COMPILED_HEAD.pack(0, 0.1)


def answer(*said: tuple[int, bytes]) -> bytes:
    told = [(HELLO, b"abi=7\nfilter=1\nroot=0"), *said, (frames.DONE, b"")]
    return PART.nonce + b"".join(frames.FRAME.pack(name, len(payload)) + payload for name, payload in told)


def ended(status: int) -> tuple[int, bytes]:
    return ENDED, STATUS.pack(status)


def test_a_text_that_crashes_the_compiler_of_each_runner_is_one_error() -> None:
    crashed = ended(signal.SIGSEGV)
    compiled = read(answer(crashed, crashed), PART).compiled
    assert compiled is not None
    assert (compiled.status, compiled.stderr) == ("error", b"the program crashes the interpreter's compiler\n")


def test_a_runner_that_crashes_where_another_compiled_is_no_verdict() -> None:
    with pytest.raises(NotTheHarnessError, match="a runner ended with -11"):
        read(answer(COMPILED, COMPILED, ended(0), ended(signal.SIGSEGV)), PART)
