"""Contest programs in Go, Java, JavaScript, Rust and TypeScript: each gets the verdict that its mistake deserves."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from builders.data import ALL_DATA
from builders.judge.contest_programs import LANGUAGES, ContestProgram, load_problems, load_programs
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, request_of, services, told

from evalrun_executor.toolchain import COMPILERS
from evalrun_judge.status import TestStatus
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800 if ALL_DATA else 600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A gateway before a sandbox that refuses to run at any level but full."""
    async with services(tmp_path_factory.mktemp("services")) as (gateway, _):
        yield gateway.address


def find_status(verdict: judge_pb2.Verdict) -> TestStatus | None:
    """Return the status of the first test that failed, `success` where none did, None where nothing is known."""
    if not verdict.judged:
        return None
    failed = [test.status for test in verdict.tests if test.status != judge_pb2.TEST_STATUS_SUCCESS]
    if verdict.accepted is bool(failed):
        return None
    return (
        TestStatus(judge_pb2.TestStatus.Name(failed[0]).removeprefix("TEST_STATUS_").lower())
        if failed
        else (TestStatus.SUCCESS)
    )


def choose(programs: list[ContestProgram]) -> list[ContestProgram]:
    """Return all programs, or one of each status: a compiler takes a second, and a slow program its limit."""
    first: dict[str, ContestProgram] = {}
    for program in programs:
        first.setdefault(program.status, program)
    return programs if ALL_DATA else [*first.values()]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_contest_programs_of_a_language_get_their_verdict(judge: str, language: str) -> None:
    require_compiler(COMPILERS[language])
    problems, programs = load_problems(), load_programs(language)
    assert len(programs) >= 30
    statuses = Counter(program.status for program in programs)
    assert min(statuses[status] for status in ("success", "wrong_answer", "timeout")) >= 4
    chosen = {f"{each.problem} {each.status}: {each.mistake}": each for each in choose(programs)}
    requests = {
        name: request_of(problems[each.problem], each.text, language=language, stop_after_timeouts=1)
        for name, each in chosen.items()
    }
    verdicts = await judge_until_judged(judge, requests)
    found = {name: told(verdict) for name, verdict in verdicts.items() if find_status(verdict) != chosen[name].status}
    assert not found, "\n".join(f"{name}: {text}" for name, text in found.items())
