"""Tests that need not run: after a failure, where only the whole verdict is asked."""

import pytest
from builders.judge.gateway import Time, make_judge, make_pool, stdio_request
from msgspec import structs

from evalrun_executor.api import ProgramRun, RunReply, RunRequest
from evalrun_judge.sandboxes.fake import FakeSandbox, reply
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import CheckerProgram, JudgeRequest
from evalrun_judge.verdict import Verdict
from evalrun_judge.waves import make_waves
from evalrun_registry.comparators import Comparator

PASSES, FAILS, CRASHES, HANGS, UNKNOWN = "passes", "fails", "crashes", "hangs", "unknown"


@pytest.mark.parametrize(
    ("count", "language", "sizes"),
    [(1, "python", [1]), (2, "python", [1, 1]), (30, "python", [1, 4, 16, 9]), (30, "cpp", [30]), (30, "java", [30])],
)
def test_make_waves_cover_every_test_once(count: int, language: str, sizes: list[int]) -> None:
    waves = make_waves(count, language)
    assert [len(wave) for wave in waves] == sizes
    assert [index for wave in waves for index in wave] == list(range(count))


def run_input(data: bytes) -> ProgramRun:
    match data.decode().partition(" ")[0]:
        case "crashes":
            return ProgramRun("exited", exit_code=1)
        case "hangs":
            return ProgramRun("timeout", cpu_seconds=36.0, wall_seconds=36.0)
        case "unknown":
            return ProgramRun("timeout", cpu_seconds=31.0, wall_seconds=70.0, confirmed=False)
    return ProgramRun("exited", exit_code=0, stdout=data)


def run_all(request: RunRequest) -> RunReply:
    """A program that prints its input; its runs after the first timeout are left out, as sandboxes do."""
    runs: list[ProgramRun] = []
    for data in request.inputs:
        late = request.stop_after_timeouts and any(run.end == "timeout" for run in runs)
        runs.append(ProgramRun("not_run") if late else run_input(data))
    return reply(*runs)


async def judge(request: JudgeRequest, sandbox: FakeSandbox) -> Verdict:
    time = Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        return await make_judge(pool, time)[0].judge(request)
    finally:
        await pool.close()


SHAPES = [
    # (what each test does, tests that a request without a stop runs, and one with)
    ([PASSES] * 6, [6], [1, 4, 1]),
    ([FAILS] * 6, [6], [1]),
    ([PASSES, FAILS] + [PASSES] * 4, [6], [1, 4]),
    ([PASSES] * 5 + [FAILS], [6], [1, 4, 1]),
    ([CRASHES] + [PASSES] * 5, [6], [1]),
    ([HANGS] * 6, [6], [1]),
    ([PASSES, HANGS] + [PASSES] * 4, [6], [1, 4]),
    ([UNKNOWN, FAILS] + [PASSES] * 4, [6], [1, 4]),
    ([UNKNOWN] + [PASSES] * 5, [6], [1, 4, 1]),
]


@pytest.mark.parametrize("tests", [[PASSES, HANGS, PASSES, PASSES], [PASSES, PASSES, HANGS, PASSES, PASSES, PASSES]])
@pytest.mark.parametrize("language", ["python", "cpp"])
async def test_timeout_that_decides_leaves_the_checker_the_tests_that_ran(tests: list[str], language: str) -> None:
    def run(request: RunRequest) -> RunReply:
        if request.inputs[0].startswith((b"passes", b"hangs")):
            return run_all(request)
        return reply(*(ProgramRun("exited", exit_code=42) for _ in request.inputs))

    asked = stdio_request(*((f"{kind} {n}", "x") for n, kind in enumerate(tests)), comparator=Comparator("checker"))
    request = structs.replace(
        asked,
        submission=structs.replace(asked.submission, language=language),
        checker=CheckerProgram("kattis", "python", "..."),
        stop_at_failure=True,
        stop_after_timeouts=1,
    )
    verdict = await judge(request, FakeSandbox(run))
    ran = tests.index(HANGS) + 1
    assert [test.status for test in verdict.tests] == [TestStatus.SUCCESS] * (ran - 1) + [TestStatus.TIMEOUT]
    assert (verdict.judged, verdict.accepted) == (True, False)


@pytest.mark.parametrize(("tests", "whole", "stopped"), SHAPES)
@pytest.mark.parametrize("stops", [False, True])
async def test_first_failure_ends_later_waves_only_with_stop_at_failure(
    tests: list[str], whole: list[int], stopped: list[int], stops: bool
) -> None:
    pairs = [(f"{kind} {n}", "another" if kind == FAILS else f"{kind} {n}") for n, kind in enumerate(tests)]
    request = structs.replace(stdio_request(*pairs), stop_at_failure=stops, stop_after_timeouts=int(stops))
    sandbox = FakeSandbox(run_all)
    verdict = await judge(request, sandbox)
    assert [len(sent.inputs) for sent in sandbox.requests] == (stopped if stops else whole)
    failed = any(kind in (FAILS, CRASHES, HANGS) for kind in tests)
    assert verdict.accepted == (set(tests) == {PASSES})
    assert verdict.judged == (failed or UNKNOWN not in tests)
    assert [test.case_index for test in verdict.tests] == list(range(len(verdict.tests)))
    if stops and failed and len(verdict.tests) < len(tests):
        assert verdict.pass_ratio is None
        assert any(test.status not in (TestStatus.SUCCESS, TestStatus.API_ERROR) for test in verdict.tests)
    else:
        assert len(verdict.tests) == len(tests)
