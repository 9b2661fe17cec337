"""Contest programs in Go, Java, JavaScript, Rust and TypeScript: each gets the verdict that its mistake deserves."""

from collections import Counter

import pytest
from builders.data import ALL_DATA
from builders.judge.contest_programs import LANGUAGES, ContestProgram, load_problems, load_programs
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, request_of, told

from evalrun_executor.toolchain import COMPILERS
from evalrun_judge.status import TestStatus
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800 if ALL_DATA else 600)]

SLOW_SECONDS = 0.5
"""Limit of the sample's programs that are too slow: they use it up several times before the timeout is certain."""


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
async def test_contest_programs_of_a_language_get_their_verdict(judge_of_languages: str, language: str) -> None:
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
    for name, request in requests.items():
        if chosen[name].status == "timeout" and not ALL_DATA:
            request.limits.time_seconds = SLOW_SECONDS
    verdicts = await judge_until_judged(judge_of_languages, requests)
    found = {name: told(verdict) for name, verdict in verdicts.items() if find_status(verdict) != chosen[name].status}
    assert not found, "\n".join(f"{name}: {text}" for name, text in found.items())
