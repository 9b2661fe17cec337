"""From a request to what must run."""

import pytest

from evalrun_judge.extraction import SubmissionMode
from evalrun_judge.plan import FunctionPlan, NothingToRun, StdioPlan, plan_of, program_after
from evalrun_judge.submission import AssertTests, CheckTest, JudgeRequest, StdioTest, StdioTests, Submission

PROMPT = 'from typing import List\n\ndef f(x: int) -> int:\n    """Add one."""\n'
BODY = "    return x + 1\n"
WHOLE = "def f(x):\n    return x + 1\n"

AUTO, APPEND, STANDALONE = SubmissionMode.AUTO, SubmissionMode.APPEND, SubmissionMode.STANDALONE


def function_plan(text: str, mode: SubmissionMode, prompt: str = PROMPT) -> FunctionPlan:
    plan = plan_of(JudgeRequest(Submission(text, mode), CheckTest(prompt, "def check(c): ...", "f")))
    assert isinstance(plan, FunctionPlan)
    return plan


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
def test_how_a_check_tests_program_is_put_together(text: str, mode: SubmissionMode, program: str) -> None:
    plan = function_plan(text, mode)
    assert plan.program == program
    assert plan.extraction.code in program


def test_a_bare_body_counts_as_code_only_if_it_compiles_after_the_prompt() -> None:
    assert function_plan(BODY, AUTO).extraction.must_compile


def test_future_imports_move_to_the_top() -> None:
    code = "from __future__ import annotations\n\n" + WHOLE
    program = program_after(PROMPT, code, AUTO)
    assert program.startswith("from __future__ import annotations\n")
    compile(program, "program", "exec")
    assert program_after(PROMPT, code, APPEND) == PROMPT + code  # byte for byte, whatever comes of it


def test_a_prompt_without_a_last_newline() -> None:
    assert program_after("def f(x):", BODY, AUTO) == "def f(x):\n" + BODY
    assert program_after("x = 1\ny =", " 2\n", APPEND) == "x = 1\ny = 2\n"


def test_mbpp_has_no_prompt_to_run() -> None:
    plan = plan_of(JudgeRequest(Submission(f"```python\n{WHOLE}```"), AssertTests(["assert f(1) == 2"], "", "f")))
    assert isinstance(plan, FunctionPlan)
    assert plan.program == WHOLE


def test_a_stdio_program_runs_once_a_test_on_the_very_bytes() -> None:
    tests = StdioTests([StdioTest("1\r\n", "å"), StdioTest("", "")])
    plan = plan_of(JudgeRequest(Submission("int main(){}", STANDALONE, "cpp"), tests))
    assert isinstance(plan, StdioPlan)
    assert plan.run.inputs == [b"1\r\n", b""]
    assert plan.expected == ("å".encode(), b"")
    assert plan.run.code == "int main(){}"


@pytest.mark.parametrize("mode", [AUTO, APPEND, STANDALONE])
def test_nothing_to_run(mode: SubmissionMode) -> None:
    plan = plan_of(JudgeRequest(Submission("\n", mode), CheckTest(PROMPT, "def check(c): ...", "f")))
    assert isinstance(plan, NothingToRun)
