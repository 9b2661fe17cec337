"""A session's answer is read as bytes from a process beside hostile code."""

import pytest

from evalrun_executor.contained.frames import EXECUTED_HEAD, REPLY_HEAD
from evalrun_executor.errors import ExecutorLost
from evalrun_sandbox.sessions.interpreter import CodeError, parse_executed, parse_reply

CAP = 100


def reply(result: bytes = b"", name: bytes = b"", value: bytes = b"", trace: bytes = b"", *, raised: int = 0) -> bytes:
    return REPLY_HEAD.pack(raised, len(result), len(name), len(value), len(trace)) + result + name + value + trace


def answer(out: bytes = b"", err: bytes = b"", said: bytes = b"", reason: bytes = b"", **changed: float) -> bytes:
    facts = {
        "stopped": 0, "alive": 1, "cpu": 0.5, "wall": 1.0, "out_total": len(out), "err_total": len(err),
        "out": len(out), "err": len(err), "said": len(said), "held": 7, "threads": 1, "pid": 9,
    } | changed  # fmt: skip
    return EXECUTED_HEAD.pack(*facts.values()) + out + err + said + reason


def test_answer_holds_output_result_and_usage_of_the_code() -> None:
    found = parse_executed(answer(b"out", b"err", reply(b"42"), out_total=1000), CAP)
    assert (found.stdout, found.stdout_bytes, found.stderr, found.result, found.error) == (
        b"out", 1000, b"err", "42", None,
    )  # fmt: skip
    assert (found.held_bytes, found.threads, found.pid, found.lost) == (7, 1, 9, "")


def test_an_answer_with_an_end_says_why() -> None:
    assert parse_executed(answer(reason=b"more than 32 threads", alive=0), CAP).lost == "more than 32 threads"
    assert parse_executed(answer(alive=0), CAP).lost


def test_a_reply_that_is_not_utf_8_is_still_text() -> None:
    said = reply(b"\xff", b"E", b"v\xff", b"trace", raised=1)
    assert parse_reply(said) == ("\ufffd", CodeError("E", "v\ufffd", "trace"))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        answer(said=reply())[:-1],
        answer(b"x" * (CAP + 1), said=reply()),
        answer(b"xx", said=reply(), out_total=1),
        answer(said=reply(), stopped=9),
        answer(said=reply(), alive=2),
        answer(said=reply(), cpu=-1.0),
        answer(said=reply(), pid=(1 << 22) + 1),
        answer(said=b"short"),
        answer(said=REPLY_HEAD.pack(0, 1 << 30, 0, 0, 0)),
        answer(said=reply(b"x" * ((1 << 16) + 1))),
        answer(said=reply(), alive=0),
        answer(),
    ],
)
def test_an_impossible_answer_is_no_answer(payload: bytes) -> None:
    with pytest.raises(ExecutorLost):
        parse_executed(payload, CAP)
