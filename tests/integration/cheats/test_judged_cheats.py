"""Cheats in Go, Java, JavaScript, Rust and TypeScript as submissions to the judge: none is accepted."""

import pytest
from builders.data import ALL_DATA
from builders.judge.contest_programs import LANGUAGES, LIMITS, load_problems
from builders.judge.language_cheats import ACT_TEST, COMPILE_TIME, Cheat, load_cheats
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, request_of, told

from evalrun_data.records import Problem, StdioTests
from evalrun_executor.toolchain import COMPILERS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800 if ALL_DATA else 600)]

SAMPLED = 10
"""Of a language's own cheats one of so many is judged. One of those that are tried while it compiles, and one act, are
enough here: `test_language_cheats` tries all of them, but for TypeScript's own, all of which aim at its compiler.
"""


def choose(language: str, cheats: list[Cheat]) -> list[Cheat]:
    """Return all cheats, or some of each kind: others for each language, since many list the same in the same order."""
    compiled = [cheat for cheat in cheats if cheat.name in COMPILE_TIME]
    acts = [cheat for cheat in cheats if cheat.problem == "act"]
    own = [cheat for cheat in cheats if cheat.problem != "act" and cheat.name not in COMPILE_TIME]
    step = SAMPLED if len(own) > SAMPLED else 3
    return cheats if ALL_DATA else [*own[2 * LANGUAGES.index(language) % step :: step], *compiled[:1], *acts[:1]]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_no_cheat_of_a_language_is_accepted(judge_of_languages: str, language: str) -> None:
    require_compiler(COMPILERS[language])
    given, expected = ACT_TEST
    act = Problem("cheats", "act", "Do it.", StdioTests((given,), (expected,)), limits=LIMITS)
    problems = {**load_problems(), "act": act}
    cheats = load_cheats(language)
    assert len(cheats) >= 40
    requests = {
        f"{number}: {cheat.name}": request_of(
            problems[cheat.problem], cheat.text, language=language, stop_after_timeouts=1
        )
        for number, cheat in enumerate(choose(language, cheats))
    }
    verdicts = await judge_until_judged(judge_of_languages, requests)
    # What is not judged would leave the score's denominator: a cheat may not achieve that either.
    assert [f"{name}: {told(each)}" for name, each in verdicts.items() if each.accepted or not each.judged] == []
