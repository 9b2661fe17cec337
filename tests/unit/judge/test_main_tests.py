"""A `main` that asserts: what runs, what its ends mean, and that this machine's compilers agree."""

import shutil
import subprocess
from pathlib import Path

import pytest
from builders.data import PROJECT_ROOT
from builders.judge.gateway import Time, make_judge, make_pool

from evalrun_executor.api import CompileResult, ProgramRun, RunReply, RunRequest
from evalrun_judge.extraction import SubmissionMode
from evalrun_judge.families.humaneval_x_forms import cut_at_brace
from evalrun_judge.families.main import MainTest, decide_outcome
from evalrun_judge.families.main_forms import FORMS, make_program
from evalrun_judge.sandboxes.fake import FakeSandbox, ended, reply
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, Submission
from evalrun_judge.verdict import Verdict

SECRET = "5ecret"
PROMPT = "#include<assert.h>\n#include<stdlib.h>\n// Twice x.\nlong twice(long x) {\n"
MAIN = "int main() {\n    auto candidate = twice;\n    assert(candidate((2)) == (4));\n}"
TESTS = MainTest(PROMPT, MAIN, "twice")
CPP = FORMS["cpp"]
WHOLE = "long twice(long x) {\n    return 2 * x;\n}"
AUTO, APPEND, STANDALONE = SubmissionMode.AUTO, SubmissionMode.APPEND, SubmissionMode.STANDALONE

# name, code, mode, status
PROGRAMS: dict[str, tuple[str, SubmissionMode, TestStatus]] = {
    "a continuation": ("    return 2 * x;", APPEND, TestStatus.SUCCESS),
    "a continuation and more": ("    return 2 * x;\n}\nint main() { broken", APPEND, TestStatus.SUCCESS),
    "an extracted continuation": ("    return x + x;\n}", AUTO, TestStatus.SUCCESS),
    "a whole function": (WHOLE, AUTO, TestStatus.SUCCESS),
    "a whole program": (f"#include <cstdio>\n{WHOLE}\nint main() {{ puts(\"4\"); }}", AUTO, TestStatus.SUCCESS),
    "a program as it stands": (WHOLE, STANDALONE, TestStatus.SUCCESS),
    "wrong": ("    return x;", APPEND, TestStatus.WRONG_ANSWER),
    "ends with 0": ("    exit(0);", APPEND, TestStatus.WRONG_ANSWER),
    "ends with 0 before main": (f"{WHOLE}\nstatic int early = (exit(0), 0);", AUTO, TestStatus.WRONG_ANSWER),
    "asserts nothing": ("    return x;\n}\n#undef assert\n#define assert(x)", AUTO, TestStatus.WRONG_ANSWER),
    "no asserts": ("#undef assert\n#define assert(x)\nlong twice(long x) {return 0;}", AUTO, TestStatus.WRONG_ANSWER),
    "aborts": ("    abort();", APPEND, TestStatus.RUNTIME_ERROR),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("g++")
    if found is None:
        pytest.skip("needs g++")
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_their_tests_compile_and_get_the_expected_status(
    name: str, compiler: str, tmp_path: Path
) -> None:
    code, mode, status = PROGRAMS[name]
    program = make_program(CPP, PROMPT, "twice", code, mode)
    (tmp_path / "all.cpp").write_text(CPP.add_tests(program, MAIN, SECRET))
    built = subprocess.run(
        [compiler, "-std=gnu++17", "-o", "all", "all.cpp"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "all"], capture_output=True, check=False)
    run = ended(done.stdout, exit_code=done.returncode, stderr=done.stderr)
    assert decide_outcome(CPP, run, SECRET).status is status


def test_type_of_the_prompt_is_kept_unless_the_answer_defines_it() -> None:
    union = "union Any { int a; };"
    prompt = f"#include<assert.h>\n{union}\nAny first(Any x) {{\n"
    whole = "Any first(Any x) {\n    return x;\n}"
    assert make_program(CPP, prompt, "first", whole, AUTO).count(union) == 1
    restated = make_program(CPP, prompt, "first", f"{union}\n{whole}", AUTO)
    assert restated.count(union) == 1
    assert "#include<assert.h>" in restated


@pytest.mark.parametrize(
    ("run", "status", "reason"),
    [
        (ended(f"\n{SECRET}\n".encode()), TestStatus.SUCCESS, ""),
        (ended(b"x"), TestStatus.WRONG_ANSWER, "the program ended before its tests did"),
        (ProgramRun("timeout"), TestStatus.TIMEOUT, ""),
        (ended(exit_code=3), TestStatus.RUNTIME_ERROR, "exit code 3"),
    ],
)
def test_decide_outcome_follows_from_the_end_of_the_program(run: ProgramRun, status: TestStatus, reason: str) -> None:
    outcome = decide_outcome(CPP, run, SECRET)
    assert (outcome.status, outcome.reason if reason else "") == (status, reason)


async def judge(answer: RunReply, language: str = "cpp", tests: MainTest = TESTS) -> tuple[Verdict, list[RunRequest]]:
    sandbox, time = FakeSandbox(lambda _: answer), Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        request = JudgeRequest(Submission(f"```cpp\n{WHOLE}\n```", language=language), tests)
        return await make_judge(pool, time)[0].judge(request), sandbox.requests
    finally:
        await pool.close()


async def test_end_text_differs_per_run_and_every_verdict_is_marked_forgeable() -> None:
    verdict, (first,) = await judge(reply(ended(SECRET.encode())))
    assert (verdict.accepted, verdict.forgeable, len(verdict.tests)) == (False, "shared_process", 1)
    _, (second,) = await judge(reply(ended(b"")))
    assert first.code != second.code
    assert first.code.partition("fputs")[0] == second.code.partition("fputs")[0]


async def test_a_program_that_does_not_compile_is_no_wrong_answer() -> None:
    verdict, _ = await judge(reply(ProgramRun("not_run"), compiling=CompileResult("error")))
    assert verdict.tests[0].status is TestStatus.COMPILE_ERROR


@pytest.mark.parametrize(
    ("language", "tests", "message"),
    [
        (
            "python",
            TESTS,
            "judged in cpp, go, java, javascript, lua, php, ruby, rust, typescript, not in 'python'",
        ),
        ("cpp", MainTest(PROMPT, "}" + MAIN, "twice"), "main.main: it is not a whole function"),
        ("cpp", MainTest(PROMPT, MAIN, "twice()"), "main.entry_point: 'twice()' is not the name"),
    ],
)
async def test_request_that_can_never_be_judged_is_refused(language: str, tests: MainTest, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await judge(reply(ended()), language, tests)
    assert message in str(refused.value)


def test_documentation_states_that_verdicts_of_main_tests_can_be_forged() -> None:
    page = " ".join((PROJECT_ROOT / "docs" / "data-formats.md").read_text().split())
    assert "can forge a pass, so every verdict is marked `forgeable` and feeds no gate" in page


@pytest.mark.parametrize(
    ("code", "closed", "kept"),
    [
        ("  return 1\n}\nrest {", 1, "  return 1\n}\n"),
        ("  if x { y }\n}\n\nfunc help() {\n}\nfunc main() {}\n", 1, "  if x { y }\n}\n\nfunc help() {\n}\n"),
        (
            "  return 1;\n    }\n    int help() { return 2; }\n}\nrest",
            2,
            "  return 1;\n    }\n    int help() { return 2; }\n}\n",
        ),
        ("  return 1;\n    }\n", 2, "  return 1;\n    }\n}\n"),
        ("  return 1", 1, "  return 1\n"),
        ("", 2, "\n"),
    ],
)
def test_a_continuation_of_humaneval_x_ends_with_its_function(code: str, closed: int, kept: str) -> None:
    assert cut_at_brace(code, closed) == kept
