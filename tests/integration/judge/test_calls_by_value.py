"""Functions called by values in each language: right ones pass, and no other does."""

import json
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from builders.data import ALL_DATA
from builders.judge.call_programs import CALLS, ECHOED, LANGUAGES, RESULTS, SIGNATURE, write_echo, write_programs
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, services, told

from evalrun_executor.toolchain import COMPILERS
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900 if ALL_DATA else 400)]

ECHOED_HERE = tuple(ECHOED) if ALL_DATA else ("string",)
"""A compiler takes a second."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with services(tmp_path_factory.mktemp("services")) as (gateway, _):
        yield gateway.address


def ask(
    language: str, text: str, signature: str, calls: Sequence[str], results: Sequence[str]
) -> judge_pb2.JudgeRequest:
    return judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text=text, mode=judge_pb2.SUBMISSION_MODE_STANDALONE, language=language),
        calls=judge_pb2.CallTests(signature=signature, calls=calls, results=results),
    )


@pytest.mark.parametrize("language", LANGUAGES)
async def test_right_functions_pass_and_others_do_not(judge: str, language: str) -> None:
    if language in COMPILERS:
        require_compiler(COMPILERS[language])
    requests = {name: ask(language, text, SIGNATURE, CALLS, RESULTS) for name, text in write_programs(language).items()}
    if language == "cpp":
        half = "double half(int x) { return x / 2.0; }"
        requests["returns another type"] = ask(language, half, "half(x: int) -> int", ["[7]"], ["3"])
    for scalar in ECHOED_HERE:
        signature, program = write_echo(language, scalar)
        values = [json.dumps(value) for value in ECHOED[scalar]]
        requests[f"right, of {scalar}"] = ask(language, program, signature, [f"[{value}]" for value in values], values)
    verdicts = await judge_until_judged(judge, requests)
    wrong = [
        f"{name}: {told(verdict)}"
        for name, verdict in verdicts.items()
        if not verdict.judged or verdict.accepted is not name.startswith("right") or verdict.forgeable
    ]
    assert not wrong, "\n".join(wrong)
    early = verdicts["ends early"].tests[0]
    assert early.status in (judge_pb2.TEST_STATUS_WRONG_ANSWER, judge_pb2.TEST_STATUS_RUNTIME_ERROR)
