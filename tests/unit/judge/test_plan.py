"""From a request to what must run."""

import pytest

from evalrun_judge.extraction import Extraction, SubmissionMode
from evalrun_judge.families.function import plan_function, program_after
from evalrun_judge.families.stdio import plan_stdio
from evalrun_judge.submission import (
    AssertTests,
    CheckTest,
    JudgeRequest,
    StdioTest,
    StdioTests,
    Submission,
    extract_program,
)

PROMPT = 'from typing import List\n\ndef f(x: int) -> int:\n    """Add one."""\n'
BODY = "    return x + 1\n"
WHOLE = "def f(x):\n    return x + 1\n"

AUTO, APPEND, STANDALONE = SubmissionMode.AUTO, SubmissionMode.APPEND, SubmissionMode.STANDALONE


def function_plan(text: str, mode: SubmissionMode) -> tuple[str, Extraction]:
    request = JudgeRequest(Submission(text, mode), CheckTest(PROMPT, "def check(c): ...", "f"))
    extraction = extract_program(request.submission)
    return plan_function(request, extraction).program, extraction


@pytest.mark.parametrize(
    ("text", "mode", "program"),
    [
        (BODY, APPEND, PROMPT + BODY),
        (BODY, AUTO, PROMPT + BODY),  # no fence: the text itself, after the prompt
        (f"```python\n{BODY}```", AUTO, PROMPT + BODY),
        (f"```python\n{WHOLE}```", AUTO, PROMPT + WHOLE),  # restated: still after the prompt's imports and helpers
        (WHOLE, STANDALONE, WHOLE),
        (f"```python\n{WHOLE}```", STANDALONE, f"```python\n{WHOLE}```"),
    ],
)
def test_program_of_a_check_test_is_the_prompt_and_the_code(text: str, mode: SubmissionMode, program: str) -> None:
    planned, extraction = function_plan(text, mode)
    assert planned == program
    assert extraction.code in program


def test_bare_body_must_compile_after_the_prompt() -> None:
    _, extraction = function_plan(BODY, AUTO)
    assert extraction.must_compile


def test_future_imports_move_to_the_top() -> None:
    code = "from __future__ import annotations\n\n" + WHOLE
    program = program_after(PROMPT, code, AUTO)
    assert program.startswith("from __future__ import annotations\n")
    compile(program, "program", "exec")
    assert program_after(PROMPT, code, APPEND) == PROMPT + code  # byte for byte, whatever comes of it


def test_prompt_without_a_last_newline_gets_one_in_auto_mode_only() -> None:
    assert program_after("def f(x):", BODY, AUTO) == "def f(x):\n" + BODY
    assert program_after("x = 1\ny =", " 2\n", APPEND) == "x = 1\ny = 2\n"


def test_mbpp_has_no_prompt_to_run() -> None:
    request = JudgeRequest(Submission(f"```python\n{WHOLE}```"), AssertTests(["assert f(1) == 2"], "", "f"))
    assert plan_function(request, extract_program(request.submission)).program == WHOLE


@pytest.mark.parametrize("mode", [AUTO, STANDALONE])
def test_a_prelude_comes_before_a_program_in_every_mode(mode: SubmissionMode) -> None:
    tests = AssertTests(["assert f(1) == 2"], "", "f", "from typing import *\n")
    request = JudgeRequest(Submission(WHOLE, mode), tests)
    assert plan_function(request, extract_program(request.submission)).program == f"from typing import *\n{WHOLE}"


@pytest.mark.parametrize("mode", [AUTO, STANDALONE])
@pytest.mark.parametrize(
    ("language", "text", "program"),
    [
        ("python", "print(gcd(4, 6))\n", "from math import *\nprint(gcd(4, 6))\n"),
        (
            "python",
            "from __future__ import annotations\nprint(1)\n",
            "from __future__ import annotations\nfrom math import *\n\nprint(1)\n",
        ),
        ("cpp", "int main(){}\n", "int main(){}\n"),
    ],
)
def test_a_prelude_comes_before_a_stdio_program_in_python(
    mode: SubmissionMode, language: str, text: str, program: str
) -> None:
    tests = StdioTests([StdioTest("", "2\n")])
    given = f"```{language}\n{text}```" if mode is AUTO else text
    request = JudgeRequest(Submission(given, mode, language, prelude="from math import *\n"), tests)
    assert plan_stdio(request, tests, extract_program(request.submission)).run.code == program


def test_a_stdio_program_runs_once_a_test_on_the_very_bytes() -> None:
    tests = StdioTests([StdioTest("1\r\n", "å"), StdioTest("", "")])
    request = JudgeRequest(Submission("int main(){}", STANDALONE, "cpp"), tests)
    plan = plan_stdio(request, tests, extract_program(request.submission))
    assert plan.run.inputs == [b"1\r\n", b""]
    assert plan.expected == ("å".encode(), b"")
    assert plan.run.code == "int main(){}"


@pytest.mark.parametrize("mode", [AUTO, APPEND, STANDALONE])
def test_blank_submission_extracts_no_code(mode: SubmissionMode) -> None:
    assert not extract_program(Submission("\n", mode)).code.strip()
