"""A checker: a program that says whether an output is right. Pure: what to run, and what its ends mean.

It runs in the sandbox, in runs of its own, one a test. A sandbox's program has stdin only, so that a few lines of ours
before the checker's source put what it expects in place: the three files in its private folder, its arguments, and for
Kattis the candidate's output as stdin. The source must stand alone, except for headers that the sandbox has. A C or C++
`main` must end with `return` or `exit`: it is called as an ordinary function.
"""

from collections.abc import Sequence
from typing import cast

from evalrun_executor.api import Limits, ProgramRun, RunReply, RunRequest
from evalrun_judge.comparators import Comparator, ComparatorName, disagreeing
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import CheckerProgram, Language
from evalrun_judge.verdict import TestOutcome

ENDS: dict[str, dict[int, TestStatus]] = {
    "kattis": {42: TestStatus.SUCCESS, 43: TestStatus.WRONG_ANSWER},
    "testlib": {0: TestStatus.SUCCESS, 1: TestStatus.WRONG_ANSWER, 2: TestStatus.WRONG_ANSWER},
}
"""Exit codes that are an answer (testlib's 2: presentation error)."""

ARGUMENTS = {"kattis": ("input", "answer", "feedback/"), "testlib": ("input", "output", "answer")}

LENGTH_BYTES = 8

NO_TESTLIB = (
    "it includes testlib.h, which this sandbox lacks: put the file (github.com/MikeMirzayanov/testlib) into "
    "/usr/local/include where the sandbox runs"
)

_PYTHON = """\
import os, sys
for _name in ("input", "answer", "output"):
    with open(_name, "wb") as _file:
        _file.write(sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read({length}), "little")))
os.mkdir("feedback")
sys.argv[1:] = {arguments!r}
if {output_as_stdin!r}:
    sys.stdin = open("output", encoding="utf-8", errors="surrogateescape")
    os.dup2(sys.stdin.fileno(), 0)
del _name, _file
exec(compile({source!r}, "checker.py", "exec"))
"""

_C = """\
#define main evalrun_checker_main
{source}
#undef main
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
static void evalrun_place(const char *name) {{
    uint64_t left;
    static char part[65536];
    FILE *file = fopen(name, "wb");
    if (file == NULL || fread(&left, sizeof left, 1, stdin) != 1) exit(120);
    while (left > 0) {{
        size_t got = fread(part, 1, left < sizeof part ? (size_t)left : sizeof part, stdin);
        if (got == 0 || fwrite(part, 1, got, file) != got) exit(121);
        left -= got;
    }}
    if (fclose(file) != 0) exit(122);
}}
{call}
int main(void) {{
    static char name[] = "checker", first[] = "{0}", second[] = "{1}", third[] = "{2}";
    static char *arguments[] = {{name, first, second, third, NULL}};
    evalrun_place("input");
    evalrun_place("answer");
    evalrun_place("output");
    mkdir("feedback", 0700);
    if (freopen({output_as_stdin} ? "output" : "/dev/null", "rb", stdin) == NULL) exit(123);
    return evalrun_call(evalrun_checker_main, 4, arguments);
}}
"""

_CALL = {
    "c": "#define evalrun_call(checker, count, arguments) checker(count, arguments)",
    "cpp": """\
static int evalrun_call(int (*checker)(int, char **), int count, char **arguments) { return checker(count, arguments); }
static int evalrun_call(int (*checker)(int, const char **), int count, char **arguments) {
    return checker(count, const_cast<const char **>(arguments));
}""",
}


def checker_run(checker: CheckerProgram, cases: Sequence[tuple[bytes, bytes, bytes]], limits: Limits) -> RunRequest:
    """Return the checker's runs.

    Args:
        checker: one that `check_request` let pass.
        cases: (input, expected output, stdout) of each test that the checker decides.
        limits: of each run.
    """
    return RunRequest(
        language=cast(Language, checker.language),
        code=_program(checker),
        inputs=[b"".join(len(text).to_bytes(LENGTH_BYTES, "little") + text for text in case) for case in cases],
        limits=limits,
    )


def _program(checker: CheckerProgram) -> str:
    arguments = ARGUMENTS[checker.protocol]
    output_as_stdin = checker.protocol == "kattis"
    if checker.language == "python":
        return _PYTHON.format(
            length=LENGTH_BYTES, arguments=list(arguments), output_as_stdin=output_as_stdin, source=checker.source
        )
    return _C.format(
        *arguments, source=checker.source, call=_CALL[checker.language], output_as_stdin=int(output_as_stdin)
    )


def checker_outcomes(
    checker: CheckerProgram, reply: RunReply, cases: Sequence[tuple[bytes, bytes, bytes]]
) -> list[TestOutcome]:
    """Return what each of the checker's runs means for its case; see `checker_run`."""
    if reply.compile.status != "ok":
        said = reply.compile.stderr[:200].decode("utf-8", "replace").replace("\n", " ")
        if b"testlib.h: No such file" in reply.compile.stderr:
            said = NO_TESTLIB
        broken = TestOutcome(TestStatus.API_ERROR, f"the checker does not compile: {said}", permanent=True)
        return [broken] * len(reply.runs)
    ends = ENDS[checker.protocol]
    return [_outcome(run, ends, expected, stdout) for run, (_, expected, stdout) in zip(reply.runs, cases, strict=True)]


def settled(first: TestOutcome, on_expected: TestOutcome) -> TestOutcome:
    """Return what a checker's end that is no answer means, by what the same checker makes of the expected output.

    One that handles what is expected and not this output has met what no right program prints: the answer is wrong,
    and crashing the checker is no way out of being judged.
    """
    if first.status is not TestStatus.API_ERROR or on_expected.status is TestStatus.API_ERROR:
        return first
    return TestOutcome(TestStatus.WRONG_ANSWER, f"{first.reason}; it does answer on the expected output")


def _outcome(run: ProgramRun, ends: dict[int, TestStatus], expected: bytes, stdout: bytes) -> TestOutcome:
    status = ends.get(run.exit_code) if run.end == "exited" and run.exit_code is not None else None
    if status is None:
        how = f"with exit code {run.exit_code}" if run.end == "exited" else f"by {run.end}"
        return TestOutcome(TestStatus.API_ERROR, f"the checker ended {how}, which is no answer", permanent=True)
    passed = status is TestStatus.SUCCESS
    said = run.stderr[:200].decode("utf-8", "replace").replace("\n", " ").strip()
    others = disagreeing(expected, stdout, Comparator(ComparatorName.CHECKER), passed)
    return TestOutcome(status, "" if passed else said, others)
