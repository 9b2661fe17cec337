"""Cheats in Go, Java, JavaScript, Rust and TypeScript as submissions to the judge: none is accepted."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from builders.data import ALL_DATA
from builders.judge.contest_programs import LANGUAGES, LIMITS, load_problems
from builders.judge.language_cheats import ACT_TEST, load_cheats
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, request_of, services, told

from evalrun_data.records import Problem, StdioTests
from evalrun_executor.toolchain import COMPILERS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800 if ALL_DATA else 600)]

SAMPLED = 12
"""One of so many cheats is judged: the acts are also tried all in one program, by `test_language_cheats`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A gateway before a sandbox that refuses to run at any level but full."""
    async with services(tmp_path_factory.mktemp("services")) as (gateway, _):
        yield gateway.address


@pytest.mark.parametrize("language", LANGUAGES)
async def test_no_cheat_of_a_language_is_accepted(judge: str, language: str) -> None:
    require_compiler(COMPILERS[language])
    given, expected = ACT_TEST
    act = Problem("cheats", "act", "Do it.", StdioTests((given,), (expected,)), limits=LIMITS)
    problems = {**load_problems(), "act": act}
    cheats = {f"{number}: {cheat.name}": cheat for number, cheat in enumerate(load_cheats(language))}
    assert len(cheats) >= 40
    requests = {
        name: request_of(problems[cheat.problem], cheat.text, language=language, stop_after_timeouts=1)
        for number, (name, cheat) in enumerate(cheats.items())
        if ALL_DATA or number % SAMPLED == 0
    }
    verdicts = await judge_until_judged(judge, requests)
    # What is not judged would leave the score's denominator: a cheat may not achieve that either.
    assert [f"{name}: {told(each)}" for name, each in verdicts.items() if each.accepted or not each.judged] == []
