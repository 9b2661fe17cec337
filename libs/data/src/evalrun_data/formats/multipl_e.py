"""MultiPL-E's rows: HumanEval and MBPP translated to other languages, of which nine are judged.

In C++, Java and Rust the prompt ends within a function, and the published tests begin with the brace that closes it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from evalrun_data.records import MainTest, Problem
from evalrun_data.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """The field `tests` of a language."""

    language: str
    """Name of the language in evalrun."""
    main: re.Pattern[str]
    """Matches all of the field; its group contains the tests."""
    candidate: re.Pattern[str]
    leaves: re.Pattern[str] | None = None
    """Matches code that may leave a function or the process: how all tests are called."""
    shape: str


_LET: Final = re.compile(r"\blet\s+candidate\s*=\s*([A-Za-z_]\w*)\s*;")
_TESTS: Final[Mapping[str, _Tests]] = MappingProxyType(
    {
        "cpp": _Tests(
            language="cpp",
            main=re.compile(r"\s*\}\s*(int\s+main\s*\(\s*\)\s*\{.*\})\s*", re.DOTALL),
            candidate=re.compile(r"\bauto\s+candidate\s*=\s*([A-Za-z_]\w*)\s*;"),
            shape="'}', then 'int main() {', 'auto candidate = NAME;', asserts, '}'",
        ),
        "go": _Tests(
            language="go",
            main=re.compile(r"\s*(func Test\w*\(t \*testing\.T\) \{.*\})\s*", re.DOTALL),
            candidate=re.compile(r"\bcandidate\s*:=\s*([A-Za-z_]\w*)"),
            shape="'func TestNAME(t *testing.T) {', 'candidate := NAME', a table of tests, '}'",
        ),
        "java": _Tests(
            language="java",
            main=re.compile(r"\s*\}\s*(public static void main\(String\[\] args\) \{.*\})\s*\}\s*", re.DOTALL),
            candidate=re.compile(r"\bassert\s*\(+\s*([A-Za-z_]\w*)\("),
            shape="'}', then 'public static void main(String[] args) {', asserts that call NAME, '}', '}'",
        ),
        "js": _Tests(
            language="javascript",
            main=re.compile(r"\s*(const assert = require\('node:assert'\);.*\btest\(\);)\s*", re.DOTALL),
            candidate=_LET,
            shape="const assert = require('node:assert');, then test() with 'let candidate = NAME;', then test();",
        ),
        "lua": _Tests(
            language="lua",
            main=re.compile(r"\s*(lu = require\('luaunit'\).*os\.exit\(lu\.LuaUnit\.run\(\)\))\s*", re.DOTALL),
            candidate=re.compile(r"\blocal\s+candidate\s*=\s*([A-Za-z_]\w*)"),
            leaves=re.compile(r"os\.exit\(lu\.LuaUnit\.run\(\)\)\s*\Z"),
            shape="lu = require('luaunit'), a function with 'local candidate = NAME', then os.exit(lu.LuaUnit.run())",
        ),
        "php": _Tests(
            language="php",
            main=re.compile(r"\s*(function candidate\(\.\.\.\$args\) \{.*\btest\(\);)\s*", re.DOTALL),
            candidate=re.compile(r"function candidate\(\.\.\.\$args\) \{\s*return ([A-Za-z_]\w*)\("),
            leaves=re.compile(r"\breturn [A-Za-z_]\w*\(\.\.\.\$args\);"),
            shape="function candidate(...$args) that returns NAME(...$args), then test() with exceptions, then test();",
        ),
        "rb": _Tests(
            language="ruby",
            main=re.compile(
                r"\s*(require 'test/unit'\s+class TestHumanEval < Test::Unit::TestCase\b.*\bend)\s*", re.DOTALL
            ),
            candidate=re.compile(r"\bcandidate\s*=\s*method\(:([A-Za-z_]\w*)\)"),
            shape="require 'test/unit', then class TestHumanEval with 'candidate = method(:NAME)' and assertions",
        ),
        "rs": _Tests(
            language="rust",
            main=re.compile(r"\s*\}\s*(fn\s+main\s*\(\s*\)\s*\{.*\})\s*", re.DOTALL),
            candidate=_LET,
            shape="'}', then 'fn main() {', 'let candidate = NAME;', asserts, '}'",
        ),
        "ts": _Tests(
            language="typescript",
            main=re.compile(
                r"\s*(declare var require: any;\s*const assert = require\('node:assert'\);.*\btest\(\);)\s*", re.DOTALL
            ),
            candidate=_LET,
            shape="declare var require: any;, then as in js",
        ),
    }
)
"""Tests by MultiPL-E's name of the language."""

_OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType({"go_test.go": "go"})

_LEAVES: Final = re.compile(r"\b(?:return|_?exit|_Exit|quick_exit)\b")


def is_multipl_e(row: Row) -> bool:
    """Return whether a row is MultiPL-E's."""
    return row.has("stop_tokens") and row.has("tests") and row.has("prompt") and row.has("language")


def parse_multipl_e(row: Row, dataset: str | None) -> Problem:
    """Return the problem of a row. Raises BadInputError if its language does not run here, or its tests read otherwise.

    Args:
        row: as published.
        dataset: the dataset asked for.
    """
    language = row.name("language")
    language = _OTHER_NAMES.get(language, language)
    form = _TESTS.get(language)
    if form is None:
        raise row.error(
            f"MultiPL-E in '{language}' is not supported, only in {', '.join(_TESTS)}; "
            + (
                "read HumanEval or MBPP itself, which it translates"
                if language in ("py", "python")
                else "use MultiPL-E's own containers for this language"
            )
        )
    prompt, tests = row.text("prompt"), row.text("tests")
    main, called = form.main.fullmatch(tests), form.candidate.search(tests)
    if main is None or called is None:
        raise row.error(f"field 'tests' is not MultiPL-E's for {language}: {form.shape}")
    if left := _LEAVES.search(tests if form.leaves is None else form.leaves.sub("", tests)):
        raise row.error(
            f"field 'tests' has '{left[0]}': a main that can end before its last line does not show that all ran"
        )
    return Problem(
        dataset=dataset or f"multipl_e_{language}",
        problem_id=row.name("name"),
        prompt=prompt,
        ground_truth=MainTest(prompt, main[1], called[1]),
        data_source="multipl_e",
        language=form.language,
    )
