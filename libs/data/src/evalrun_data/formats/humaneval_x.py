"""HumanEval-X's rows: HumanEval in C++, Go, Java, JavaScript, Python and Rust, with tests in the language itself."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from evalrun_data.records import CheckTest, MainTest, Problem
from evalrun_data.rows import Row

_LANGUAGES: Final[Mapping[str, tuple[str, re.Pattern[str]]]] = MappingProxyType(
    {
        "CPP": ("cpp", re.compile(r"^[^\s/*#][^\n;={]*?\b(\w+)\s*\([^\n;]*\)\s*\{", re.MULTILINE)),
        "Go": ("go", re.compile(r"^func\s+(\w+)\s*\(", re.MULTILINE)),
        "Java": ("java", re.compile(r"^\s*public\s[^\n;={}()]*?\b(\w+)\s*\(", re.MULTILINE)),
        "JavaScript": ("javascript", re.compile(r"^(?:const|let|var)\s+(\w+)\s*=|^function\s+(\w+)", re.MULTILINE)),
        "Python": ("python", re.compile(r"^def\s+(\w+)\s*\(", re.MULTILINE)),
        "Rust": ("rust", re.compile(r"\bfn\s+(\w+)\s*[(<]")),
    }
)
"""Language and head of a function, by the first part of a row's id; the last head is that of the function to complete.
"""

_CHECK_CALL: Final = re.compile(r"\n\s*check\(\s*(\w+)\s*\)\s*\Z")
_CRATES: Final = re.compile(r"^use (?:rand::Rng|regex::Regex|md5);\n", re.MULTILINE)
_TESTING: Final = ('"testing"', '"github.com/stretchr/testify/assert"')
_LEAVES: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "cpp": re.compile(r"\b(?:return|_?exit|_Exit|quick_exit)\b"),
        # A function inside the test may return.
        "go": re.compile(r"^(?:\t| {1,4})return\b|\b(?:Exit|Goexit|FailNow|SkipNow|Skip)\b", re.MULTILINE),
    }
)
"""Code that would leave the tests, by language."""
_MAIN: Final = re.compile(r"\bint\s+main\s*\(")


def is_humaneval_x(row: Row) -> bool:
    """Return whether a row is HumanEval-X's."""
    return all(row.has(field) for field in ("task_id", "prompt", "declaration", "test")) and not row.has("entry_point")


def parse_humaneval_x(row: Row, dataset: str | None) -> Problem:
    """Return the problem of a row. Raises BadInputError if its language is not known, or its tests could end early."""
    problem_id, prompt, test = row.name("task_id"), row.text("prompt"), row.name("test")
    prefix = problem_id.partition("/")[0]
    if prefix not in _LANGUAGES:
        raise row.error(f"field 'task_id' is '{problem_id[:40]}': HumanEval-X has {', '.join(_LANGUAGES)}")
    language, head = _LANGUAGES[prefix]
    heads = head.findall(row.text("declaration"))
    if not heads:
        raise row.error(f"field 'declaration' has no function of {language}")
    name = heads[-1] if isinstance(heads[-1], str) else "".join(heads[-1])
    truth: CheckTest | MainTest
    if language == "python":
        truth = CheckTest(prompt, _CHECK_CALL.sub("\n", test), name)
    else:
        if language == "rust":
            # The prompt is only a comment. The crates are removed, so that only a program that needs a crate fails to
            # compile.
            prompt = f"{prompt.rstrip()}\n{_CRATES.sub('', row.text('declaration')).lstrip()}"
        truth = MainTest(prompt, _find_main(row, language, test), name)
    return Problem(
        dataset=dataset or f"humaneval_x_{language}",
        problem_id=problem_id,
        prompt=prompt,
        ground_truth=truth,
        data_source="humaneval_x",
        language=language,
    )


def _find_main(row: Row, language: str, test: str) -> str:
    """Return the asserting code, in Go with the imports that it needs.

    Helpers before C++'s `main` may return, `main` may not.
    """
    main = _MAIN.search(test) if language == "cpp" else None
    leaves = _LEAVES.get(language)
    if leaves is not None and (left := leaves.search(test[main.start() :] if main else test)):
        raise row.error(
            f"field 'test' has '{left[0].strip()}': tests that can end before their last line do not show that all ran"
        )
    if language != "go":
        return test
    imports = [each for each in re.findall(r'"[\w./]+"', row.optional_text("test_setup")) if each not in _TESTING]
    listed = "".join(f"    {each}\n" for each in imports)
    return f"import (\n{listed})\n\n{test}" if imports else test
