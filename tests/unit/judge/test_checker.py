"""Checkers: what their ends mean, and that the lines put before them do what they say (run by this very machine)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders.data import PROJECT_ROOT
from builders.judge.gateway import Time, make_judge, make_pool, stdio_request

from evalrun_executor.api import CompileResult, Limits, ProgramRun, RunReply, RunRequest
from evalrun_judge.families.checker import PLAIN_OUTPUTS, checker_run
from evalrun_judge.sandboxes.fake import FakeSandbox, ended, reply
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import CheckerProgram, InvalidRequestError, JudgeRequest
from evalrun_judge.verdict import Verdict
from evalrun_registry.comparators import COMPARATORS, Comparator

CHECKED = Comparator("checker")
KATTIS, TESTLIB = CheckerProgram("kattis", "python", "..."), CheckerProgram("testlib", "cpp", "...")


def ask(checker: CheckerProgram, *cases: tuple[str, str]) -> JudgeRequest:
    request = stdio_request(*cases, comparator=CHECKED)
    return JudgeRequest(request.submission, request.tests, comparator=CHECKED, checker=checker)


async def judge(
    request: JudgeRequest, program: RunReply, checker: RunReply, on_expected: RunReply | None = None
) -> tuple[Verdict, list[RunRequest]]:
    """Judge; `on_expected`: what the checker says of expected outputs, where it is asked."""
    replies = iter([program, checker, on_expected or checker])
    sandbox = FakeSandbox(lambda _: next(replies))
    time = Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        return await make_judge(pool, time)[0].judge(request), sandbox.requests
    finally:
        await pool.close()


# protocol, how the checker ended, the test's status
ENDS: list[tuple[CheckerProgram, ProgramRun, TestStatus]] = [
    (KATTIS, ended(exit_code=42), TestStatus.SUCCESS),
    (KATTIS, ended(exit_code=43), TestStatus.WRONG_ANSWER),
    (KATTIS, ended(exit_code=0), TestStatus.API_ERROR),
    (KATTIS, ended(exit_code=1), TestStatus.API_ERROR),
    (KATTIS, ended(exit_code=-11), TestStatus.API_ERROR),
    (KATTIS, ProgramRun("timeout"), TestStatus.API_ERROR),
    (KATTIS, ProgramRun("memory_limit"), TestStatus.API_ERROR),
    (TESTLIB, ended(exit_code=0), TestStatus.SUCCESS),
    (TESTLIB, ended(exit_code=1), TestStatus.WRONG_ANSWER),
    (TESTLIB, ended(exit_code=2), TestStatus.WRONG_ANSWER),
    (TESTLIB, ended(exit_code=3), TestStatus.API_ERROR),
    (TESTLIB, ended(exit_code=42), TestStatus.API_ERROR),
]


@pytest.mark.parametrize(("checker", "end", "status"), ENDS)
async def test_end_of_the_checker_decides_the_status(
    checker: CheckerProgram, end: ProgramRun, status: TestStatus
) -> None:
    verdict, _ = await judge(ask(checker, ("1", "1")), reply(ended(b"2")), reply(end))
    (test,) = verdict.tests
    assert test.status is status
    assert verdict.judged is (status is not TestStatus.API_ERROR)


@pytest.mark.parametrize("end", [ended(exit_code=1), ended(exit_code=-11), ProgramRun("timeout")])
async def test_an_output_that_crashes_a_checker_which_handles_the_expected_one_is_wrong(end: ProgramRun) -> None:
    """Else an answer could take itself out of what is counted."""
    two = ask(KATTIS, ("1", "1"), ("2", "2"))
    verdict, requests = await judge(two, reply(ended(b"1"), ended(b"x")), reply(ended(exit_code=42), end),
                                    reply(ended(exit_code=42)))  # fmt: skip
    assert [test.status for test in verdict.tests] == [TestStatus.SUCCESS, TestStatus.WRONG_ANSWER]
    assert "does answer on the expected output" in verdict.tests[1].reason
    assert requests[2].inputs == checker_run(KATTIS, [(b"2", b"2", b"2")], requests[2].limits).inputs


async def test_a_checker_that_fails_on_the_expected_output_too_is_to_blame_for_good() -> None:
    verdict, _ = await judge(ask(KATTIS, ("1", "1")), reply(ended(b"x")), reply(ended(exit_code=1)))
    assert (verdict.judged, verdict.permanent) == (False, True)


@pytest.mark.parametrize(
    ("on_probes", "status"),
    [
        ([1, 43, 1, 1, 1, 1], TestStatus.WRONG_ANSWER),
        ([1, 1, 1, 1, 1, 42], TestStatus.WRONG_ANSWER),
        ([1, 1, 1, 1, 1, 1], TestStatus.API_ERROR),
    ],
)
async def test_checker_that_crashes_with_blank_expected_output_is_tried_on_plain_outputs(
    on_probes: list[int], status: TestStatus
) -> None:
    """A blank output is nothing that a checker has to read."""
    probed = reply(*(ended(exit_code=code) for code in on_probes))
    verdict, requests = await judge(ask(KATTIS, ("7\n", "\n")), reply(ended(b"x")), reply(ended(exit_code=1)), probed)
    (test,) = verdict.tests
    assert (test.status, verdict.judged) == (status, status is TestStatus.WRONG_ANSWER)
    outputs = [b"\n", *PLAIN_OUTPUTS, b"7\n"]
    known = checker_run(KATTIS, [(b"7\n", b"\n", output) for output in outputs], requests[2].limits)
    assert requests[2].inputs == known.inputs


async def test_checker_runs_only_for_tests_without_a_failure() -> None:
    program = reply(ended(b"a"), ended(b"b", exit_code=1), ended(b"c"), level="full")
    verdict, (_, checking) = await judge(
        ask(KATTIS, ("1", "x"), ("2", "y"), ("3", "z")),
        program,
        reply(ended(exit_code=42), ended(exit_code=43)),
    )
    assert [test.status for test in verdict.tests] == [
        TestStatus.SUCCESS, TestStatus.RUNTIME_ERROR, TestStatus.WRONG_ANSWER,
    ]  # fmt: skip
    assert len(checking.inputs) == 2


async def test_checker_that_does_not_compile_leaves_the_answer_not_judged() -> None:
    broken = reply(ProgramRun("not_run"), compiling=CompileResult("error", 0.1, b"error: expected ';'"))
    verdict, _ = await judge(ask(TESTLIB, ("1", "1")), reply(ended(b"1")), broken)
    assert not verdict.judged
    assert "expected ';'" in verdict.tests[0].reason


async def test_checker_without_testlib_is_not_judged_and_the_reason_names_the_remedy() -> None:
    said = b"program.cpp:2:10: fatal error: testlib.h: No such file or directory\n"
    lacking = reply(ProgramRun("not_run"), compiling=CompileResult("error", 0.1, said))
    verdict, _ = await judge(ask(TESTLIB, ("1", "1")), reply(ended(b"1")), lacking)
    assert (verdict.judged, verdict.permanent) == (False, True)
    assert "put the file (github.com/MikeMirzayanov/testlib) into /usr/local/include" in verdict.tests[0].reason


async def test_comparators_that_disagree_with_the_checker_are_named() -> None:
    verdict, _ = await judge(ask(KATTIS, ("1", "1")), reply(ended(b"2")), reply(ended(exit_code=42)))
    assert set(verdict.tests[0].disagreeing) == set(COMPARATORS) - {"checker"}


@pytest.mark.parametrize(
    ("checker", "field"),
    [
        (CheckerProgram("codeforces", "cpp", "x"), "comparator.checker.protocol"),
        (CheckerProgram("kattis", "java", "x"), "comparator.checker.language"),
        (CheckerProgram("kattis", "cpp", " "), "comparator.checker.source"),
    ],
)
async def test_a_checker_that_cannot_be_run_is_refused(checker: CheckerProgram, field: str) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        await judge(ask(checker, ("1", "1")), reply(ended()), reply(ended()))


# Accepts where the output holds the input's number plus the answer's; reads everything that its protocol offers.
KATTIS_PYTHON = """\
import sys
number, wanted = int(open(sys.argv[1]).read()), int(open(sys.argv[2]).read())
open(sys.argv[3] + "judgemessage.txt", "w").write("seen")
sys.exit(42 if int(sys.stdin.readline()) == number + wanted else 43)
"""
TESTLIB_PYTHON = """\
import sys
if __name__ == "__main__":
    number, got, wanted = (int(open(name).read()) for name in sys.argv[1:4])
    sys.exit(0 if got == number + wanted else 1)
"""
KATTIS_CPP = """\
#include <fstream>
#include <iostream>
#include <string>
int main(int argc, char *argv[]) {
    std::ifstream in(argv[1]), answer(argv[2]);
    std::ofstream(std::string(argv[3]) + "judgemessage.txt") << "seen";
    long long number, wanted, got;
    in >> number; answer >> wanted; std::cin >> got;
    return argc == 4 && got == number + wanted ? 42 : 43;
}
"""
TESTLIB_C = """\
#include <stdio.h>
#include <stdlib.h>
static long value(const char *name) {
    long number;
    if (fscanf(fopen(name, "r"), "%ld", &number) != 1) exit(3);
    return number;
}
int main(int argc, char **argv) {
    return argc == 4 && value(argv[2]) == value(argv[1]) + value(argv[3]) ? 0 : 2;
}
"""

REAL: list[tuple[CheckerProgram, int, int]] = [
    (CheckerProgram("kattis", "python", KATTIS_PYTHON), 42, 43),
    (CheckerProgram("testlib", "python", TESTLIB_PYTHON), 0, 1),
    (CheckerProgram("kattis", "cpp", KATTIS_CPP), 42, 43),
    (CheckerProgram("testlib", "c", TESTLIB_C), 0, 2),
]


@pytest.mark.parametrize(("checker", "yes", "no"), REAL, ids=lambda value: getattr(value, "language", ""))
def test_a_checker_finds_its_files_its_arguments_and_its_stdin(
    checker: CheckerProgram, yes: int, no: int, tmp_path: Path
) -> None:
    run = checker_run(
        checker, [(b"2\n", b"3\n", b"5\n"), (b"2\n", b"3\n", b"6\n"), (b"1", b"1" + b" " * 100_000, b"2")], Limits()
    )
    command = command_for(run, tmp_path)
    codes = []
    for number, data in enumerate(run.inputs):
        directory = tmp_path / str(number)
        directory.mkdir()
        codes.append(subprocess.run(command, input=data, cwd=directory, check=False).returncode)
    assert codes == [yes, no, yes]


DOCUMENTED = json.loads(
    next(line for line in (PROJECT_ROOT / "docs" / "data-formats.md").read_text().splitlines() if '"checker"' in line)
)
"""The problem with a checker of docs/data-formats.md."""


@pytest.mark.parametrize(
    ("stdout", "code"),
    [
        *((text.encode(), 42) for text in DOCUMENTED["ground_truth"]["outputs"]),
        (b"7\n", 43),
        (b"hello\n", 43),
        (b"", 43),
    ],
)
def test_documented_checker_ends_with_42_or_43_for_any_output(stdout: bytes, code: int, tmp_path: Path) -> None:
    given = DOCUMENTED["comparator"]
    checker = CheckerProgram(given["protocol"], given["language"], given["source"])
    (expected,) = (text.encode() for text in DOCUMENTED["ground_truth"]["outputs"])
    run = checker_run(checker, [(b"", expected, stdout)], Limits())
    ended = subprocess.run(command_for(run, tmp_path), input=run.inputs[0], cwd=tmp_path, check=False)
    assert ended.returncode == code


def command_for(run: RunRequest, directory: Path) -> list[str]:
    if run.language == "python":
        source = directory / "program.py"
        source.write_text(run.code)
        return [sys.executable, str(source)]
    compiler = shutil.which({"c": "gcc", "cpp": "g++"}[run.language])
    if compiler is None:
        pytest.skip("no compiler here")
    source = directory / f"program.{run.language}"
    source.write_text(run.code)
    subprocess.run([compiler, "-O2", "-o", str(directory / "program"), str(source)], check=True)
    return [str(directory / "program")]
