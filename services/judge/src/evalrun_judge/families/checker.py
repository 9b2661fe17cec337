"""Plans the runs of a checker program and interprets how they end. Pure.

The checker has its own runs in the sandbox, one per test. A program in the sandbox has only stdin, so a few lines of
ours before the checker's source provide the rest: the three files in its private directory, its arguments, and for
Kattis the candidate's output as stdin. The source must stand alone, except for headers that the sandbox has. A C or C++
`main` must end with `return` or `exit`, because it is called as an ordinary function.
"""

from collections.abc import Sequence

from evalrun_executor.api import Limits, ProgramRun, RunReply, RunRequest
from evalrun_judge.comparators import find_disagreeing_comparators
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import CheckerProgram
from evalrun_judge.verdict import TestOutcome
from evalrun_registry.comparators import CHECKER, Comparator
from evalrun_registry.languages import LANGUAGES

ENDS: dict[str, dict[int, TestStatus]] = {
    "kattis": {42: TestStatus.SUCCESS, 43: TestStatus.WRONG_ANSWER},
    "testlib": {0: TestStatus.SUCCESS, 1: TestStatus.WRONG_ANSWER, 2: TestStatus.WRONG_ANSWER},
}
"""Exit codes that decide (testlib's 2: presentation error)."""

ARGUMENTS = {"kattis": ("input", "answer", "feedback/"), "testlib": ("input", "output", "answer")}

LENGTH_BYTES = 8

PLAIN_OUTPUTS = (b"0\n", b"1\n", b"1 1\n", b"YES\n")
"""Outputs that nearly every checker accepts as input. They replace a blank expected output, as in problems that publish
none because any right output counts."""

NO_TESTLIB = (
    "it includes testlib.h, which this sandbox lacks: put the file (github.com/MikeMirzayanov/testlib) into "
    "/usr/local/include where the sandbox runs"
)


def checker_run(checker: CheckerProgram, cases: Sequence[tuple[bytes, bytes, bytes]], limits: Limits) -> RunRequest:
    """Return the checker's runs.

    Args:
        checker: a checker that passed `check_request`.
        cases: (input, expected output, stdout) of each test that the checker decides.
        limits: limits of each run.
    """
    return RunRequest(
        language=checker.language,
        code=_program(checker),
        inputs=[b"".join(len(text).to_bytes(LENGTH_BYTES, "little") + text for text in case) for case in cases],
        limits=limits,
    )


def _program(checker: CheckerProgram) -> str:
    return LANGUAGES[checker.language].checker.format(
        source=checker.source,
        arguments=list(ARGUMENTS[checker.protocol]),
        length=LENGTH_BYTES,
        output_as_stdin=checker.protocol == "kattis",
    )


def checker_outcomes(
    checker: CheckerProgram, reply: RunReply, cases: Sequence[tuple[bytes, bytes, bytes]]
) -> list[TestOutcome]:
    """Return the outcome of each case from the checker's runs; see `checker_run`."""
    if reply.compile.status != "ok":
        said = reply.compile.stderr[:200].decode("utf-8", "replace").replace("\n", " ")
        if b"testlib.h: No such file" in reply.compile.stderr:
            said = NO_TESTLIB
        broken = TestOutcome(TestStatus.API_ERROR, f"the checker does not compile: {said}", permanent=True)
        return [broken] * len(reply.runs)
    ends = ENDS[checker.protocol]
    return [_outcome(run, ends, expected, stdout) for run, (_, expected, stdout) in zip(reply.runs, cases, strict=True)]


def make_probes(case: tuple[bytes, bytes, bytes]) -> list[tuple[bytes, bytes, bytes]]:
    """Return runs that show whether a checker works after it gave no decision about a case.

    The runs use the expected output and, if that is blank, plain outputs and the input.
    """
    data, expected, _ = case
    others = () if expected.strip() else (*PLAIN_OUTPUTS, data)
    return [(data, expected, output) for output in (expected, *others)]


def settle_outcome(first: TestOutcome, probes: Sequence[TestOutcome], expected: bytes) -> TestOutcome:
    """Return the outcome of a case that the checker did not decide, from its results on the probes.

    A checker that handles the expected output and not this output has met an output that no right program prints: the
    program is wrong, and crashing the checker does not avoid the verdict.

    Args:
        first: the checker's outcome on the program's output.
        probes: the checker's outcomes on the outputs of `make_probes`.
        expected: the expected output.
    """
    if first.status is not TestStatus.API_ERROR or all(probe.status is TestStatus.API_ERROR for probe in probes):
        return first
    what = "the expected output" if expected.strip() else "plain outputs; none is expected"
    return TestOutcome(TestStatus.WRONG_ANSWER, f"{first.reason}; it does answer on {what}")


def _outcome(run: ProgramRun, ends: dict[int, TestStatus], expected: bytes, stdout: bytes) -> TestOutcome:
    status = ends.get(run.exit_code) if run.end == "exited" and run.exit_code is not None else None
    if status is None:
        how = f"with exit code {run.exit_code}" if run.end == "exited" else f"by {run.end}"
        return TestOutcome(TestStatus.API_ERROR, f"the checker ended {how}, which is no answer", permanent=True)
    passed = status is TestStatus.SUCCESS
    said = run.stderr[:200].decode("utf-8", "replace").replace("\n", " ").strip()
    others = find_disagreeing_comparators(expected, stdout, Comparator(CHECKER), passed)
    return TestOutcome(status, "" if passed else said, others)
