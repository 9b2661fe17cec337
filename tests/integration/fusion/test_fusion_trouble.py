"""A server's own trouble is never a verdict, and an answer that the harness did not sign is none."""

import base64
import marshal
from typing import Any

import pytest
from aiohttp import web
from builders.fusion.server import StockDouble, stock_double

from evalrun_executor.api import UNKNOWN_LANGUAGE, RunRequest
from evalrun_executor.contained import frames
from evalrun_judge.sandboxes import RunRefusedError, SandboxBusyError, SandboxFailedError
from evalrun_judge.sandboxes.fusion import FusionSandbox
from evalrun_judge.sandboxes.fusion_answer import NotTheHarnessError, read
from evalrun_judge.sandboxes.fusion_batch import Part
from evalrun_judge.sandboxes.fusion_http import CodeAnswer, Command
from evalrun_judge.sandboxes.fusion_plain import WHOLE_BYTES, read_compile_result, run
from evalrun_judge.sandboxes.stock_harness import BUNDLE, ENDED, HELLO, RESULT

NONCE = b"n" * 32
REQUEST = RunRequest("python", "print(1)", [b""])


def ran(files: dict[str, str], **result: Any) -> web.Response:
    finished = {"status": "Finished", "return_code": 0, "stdout": "", "stderr": "", **result}
    return web.json_response({"status": "Success", "message": "", "run_result": finished, "files": files})


def result(content: bytes) -> web.Response:
    return ran({f"{RESULT}0": base64.b64encode(content).decode()})


def refusal(message: str, **fields: str) -> web.Response:
    return web.json_response({"status": "SandboxError", "message": message, **fields})


TROUBLE: list[tuple[str, web.Response, type[Exception], str]] = [
    ("SandboxError", web.json_response({"status": "SandboxError", "message": "no\nrunner"}), SandboxFailedError,
     "no runner"),
    ("unknown language", refusal("any words", cause=UNKNOWN_LANGUAGE), RunRefusedError, "any words"),
    ("another cause", refusal("any words", cause="new"), SandboxFailedError, "any words"),
    ("no cause", refusal("language python is not one of c"), SandboxFailedError, "is not one of"),
    ("500", web.json_response({"detail": "boom", "traceback": ["secret frame"]}, status=500), SandboxFailedError,
     "boom"),
    ("429", web.json_response({"free": 0, "retry_after_ms": 250}, status=429), SandboxBusyError, "slot"),
    ("422", web.json_response({"detail": "no such field"}, status=422), RunRefusedError, "no such field"),
    ("html", web.Response(text="<html>"), SandboxFailedError, "no answer"),
    ("timeout of the whole call", ran({}, status="TimeLimitExceeded", return_code=None), SandboxFailedError,
     "TimeLimitExceeded"),
    ("no result", ran({}, return_code=1, stderr="harness: no memory"), SandboxFailedError, "no memory"),
    ("another's nonce", result(b"x" * 32 + frames.FRAME.pack(frames.DONE, 0)), SandboxFailedError, "signed"),
    ("nothing after the nonce", result(NONCE), SandboxFailedError, "breaks off"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "answer", "kind", "message"), TROUBLE, ids=[row[0] for row in TROUBLE])
async def test_every_bad_answer_raises_its_error_class(
    what: str, answer: web.Response, kind: type[Exception], message: str
) -> None:
    double = StockDouble()
    async with stock_double(double) as url, FusionSandbox(url, nonces=lambda _: NONCE) as client:
        await client.describe()
        double.interfere = lambda _: answer
        with pytest.raises(kind, match=message) as error:
            await client.run(REQUEST)
    assert type(error.value) is kind, what
    assert "secret frame" not in str(error.value)


async def test_changed_interpreter_is_examined_again() -> None:
    double = StockDouble()

    def loads_anothers(body: dict[str, Any]) -> None:
        body["files"][BUNDLE] = base64.b64encode(marshal.dumps((b"another", []))).decode()

    async with stock_double(double) as url, FusionSandbox(url, nonces=lambda _: NONCE) as client:
        await client.describe()
        double.interfere = loads_anothers
        with pytest.raises(SandboxFailedError, match="not the one that compiled"):
            await client.run(REQUEST)
        double.interfere = lambda _: None
        assert (await client.run(REQUEST)).runs[0].stdout == b"1\n"
    assert [call["language"] for call in double.calls] == ["python", "bash", "bash", "python", "bash", "bash"]


def frame(kind: int, payload: bytes) -> bytes:
    return frames.FRAME.pack(kind, len(payload)) + payload


HELLO_FRAME = frame(HELLO, b"abi=4\nfilter=1\nroot=0")
RUN_FRAME = frame(frames.RUN, frames.RUN_HEAD.pack(0, 0, 0, 0.1, 0.1, 8, 2) + b"1\n")
DONE_FRAME = frame(frames.DONE, b"")


def test_complete_answer_is_read() -> None:
    said = read(NONCE + HELLO_FRAME + RUN_FRAME + frame(ENDED, bytes(4)) + DONE_FRAME, Part(REQUEST, [5], NONCE))
    assert said.hello["abi"] == "4"
    assert {index: run.stdout for index, run in said.runs.items()} == {5: b"1\n"}


@pytest.mark.parametrize(
    "content",
    [
        HELLO_FRAME + RUN_FRAME,
        HELLO_FRAME + DONE_FRAME + RUN_FRAME,
        RUN_FRAME + DONE_FRAME,
        HELLO_FRAME + RUN_FRAME[:-1],
        HELLO_FRAME + frame(99, b"") + DONE_FRAME,
        HELLO_FRAME + frame(frames.RUN, frames.RUN_HEAD.pack(1, 0, 0, 0.1, 0.1, 8, 0)) + DONE_FRAME,
        HELLO_FRAME + frame(frames.FAULT, b"runner: OSError") + DONE_FRAME,
        HELLO_FRAME + frame(ENDED, (9).to_bytes(4, "little")) + DONE_FRAME,
    ],
    ids=["no end", "more after the end", "no hello", "cut", "unknown", "no such test", "fault", "runner killed"],
)
def test_incomplete_or_malformed_answer_is_rejected(content: bytes) -> None:
    with pytest.raises(NotTheHarnessError):
        read(NONCE + content, Part(REQUEST, [0], NONCE))


def plain(status: str = "Finished", code: int | None = 0, stdout: str = "", stderr: str = "") -> CodeAnswer:
    return CodeAnswer("Success", run_result=Command(status, 0.5, code, stdout, stderr))  # type: ignore[arg-type]


def test_one_call_per_test_refuses_output_that_may_have_been_cut() -> None:
    assert run(plain(stdout="x" * WHOLE_BYTES), REQUEST).end == "exited"
    for answer in (
        plain(stdout="x" * 219_264),
        plain("TimeLimitExceeded", None, "x" * 65_536),
        plain(stdout="[DecodeError] 'utf-8' codec can't decode byte 0xff in position 1: invalid start byte"),
    ):
        with pytest.raises(RunRefusedError):
            run(answer, REQUEST)
    late = run(plain("TimeLimitExceeded", None), REQUEST)
    assert (late.end, late.confirmed) == ("timeout", False)


def test_one_call_per_test_distinguishes_a_compile_error_from_a_raised_syntax_error() -> None:
    refused = plain(code=1, stderr='  File "x.py", line 1\n    print(\nSyntaxError: never closed\n')
    raised = plain(code=1, stderr='Traceback (most recent call last):\n  File "x.py"\nSyntaxError: mine\n')
    assert [read_compile_result(answer, "python").status for answer in (refused, raised)] == ["error", "ok"]
