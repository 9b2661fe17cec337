import pytest
from builders.fusion.clients import ADD, STDIO_ROW, ScriptedExecutor, exited, reply

from evalrun_executor.api import CompileResult, ProgramRun
from evalrun_executor.errors import ExecutorLost
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.families.program_plan import ProgramPlan
from evalrun_sandbox.fusion.refusals import BadRequest, TryAgain
from evalrun_sandbox.fusion.submit_runs import Submissions, divide_cases

CASES = STDIO_ROW["test"]


def stdio(language: str = "python", *, run_all_cases: bool = False, run_timeout: float = 20) -> ProgramPlan:
    return ProgramPlan(language, ADD, ADD, 10, run_timeout, cases=CASES, run_all_cases=run_all_cases)


def add(data: bytes) -> ProgramRun:
    return exited(b"%d\n" % sum(map(int, data.split())))


def wrong_at_two(data: bytes) -> ProgramRun:
    return exited(b"0\n") if data == b"2 2\n" else add(data)


def judge_with(executor: ScriptedExecutor) -> Submissions:
    return Submissions(Dispatcher(executor), "pod-1")


@pytest.mark.parametrize(
    ("count", "together", "sizes"),
    [(1, False, [1]), (3, False, [3]), (5, False, [3, 2]), (5, True, [5]), (5000, True, [4096, 904])],
)
def test_the_first_cases_run_before_the_others(count: int, together: bool, sizes: list[int]) -> None:
    found = divide_cases(count, together=together)
    assert [len(batch) for batch in found] == sizes
    assert [index for batch in found for index in batch] == list(range(count))


async def test_every_case_passed_is_accepted() -> None:
    executor = ScriptedExecutor(rule=add)
    result = await judge_with(executor).judge(stdio(), "p-1")
    assert (result.id, result.accepted, len(result.tests)) == ("p-1", True, 5)
    assert [test.test_info for test in result.tests] == CASES
    assert result.tests[0].exec_info.executor_pod_name == "pod-1"
    assert [len(request.inputs) for request in executor.asked] == [3, 2]
    assert {request.limits.time_seconds for request in executor.asked} == {20}


async def test_nothing_after_the_first_failed_case_is_reported_or_run() -> None:
    executor = ScriptedExecutor(rule=wrong_at_two)
    result = await judge_with(executor).judge(stdio(), 1)
    assert [test.passed for test in result.tests] == [True, True, False]
    assert (result.accepted, len(executor.asked)) == (False, 1)


async def test_all_cases_are_run_where_asked_for() -> None:
    executor = ScriptedExecutor(rule=wrong_at_two)
    result = await judge_with(executor).judge(stdio(run_all_cases=True), 1)
    assert [test.passed for test in result.tests] == [True, True, False, True, True]
    assert executor.asked[0].stop_after_timeouts == 0


async def test_a_compiled_program_is_compiled_once() -> None:
    executor = ScriptedExecutor(rule=add)
    result = await judge_with(executor).judge(stdio("cpp"), 1)
    assert (result.accepted, len(executor.asked)) == (True, 1)
    compiled = result.tests[4].exec_info.compile_result
    assert compiled is not None
    assert compiled.return_code == 0


async def test_a_compile_error_fails_the_first_case() -> None:
    error = reply(*[ProgramRun("not_run")] * 5, compiled=CompileResult("error", 0.1, b"no"))
    result = await judge_with(ScriptedExecutor(error)).judge(stdio("cpp"), 1)
    assert [test.passed for test in result.tests] == [False]
    assert result.tests[0].exec_info.run_result is None


async def test_a_time_out_ends_the_submission() -> None:
    late = reply(exited(b"0\n"), ProgramRun("timeout"), ProgramRun("not_run"))
    result = await judge_with(ScriptedExecutor(late)).judge(stdio(), 1)
    assert [test.passed for test in result.tests] == [True, False]


@pytest.mark.parametrize(("code", "accepted"), [(0, True), (1, False), (-9, False)])
async def test_without_cases_the_exit_status_is_the_verdict(code: int, accepted: bool) -> None:
    plan = ProgramPlan("python", "program", "extracted", 20, 20, full_code="program")
    result = await judge_with(ScriptedExecutor(reply(exited(code=code)))).judge(plan, 1)
    assert (result.accepted, [test.passed for test in result.tests]) == (accepted, [accepted])
    assert (result.extracted_code, result.full_code) == ("extracted", "program")
    assert result.tests[0].test_info is None


async def test_submission_without_time_fails_without_a_run() -> None:
    executor = ScriptedExecutor()
    result = await judge_with(executor).judge(stdio(run_timeout=-1), 1)
    assert (result.accepted, len(result.tests), executor.asked) == (False, 1, [])


async def test_lost_executor_raises_try_again_and_unknown_language_is_a_bad_request() -> None:
    with pytest.raises(TryAgain):
        await judge_with(ScriptedExecutor(ExecutorLost("gone"))).judge(stdio(), 1)
    with pytest.raises(BadRequest, match=r"config\.language: rust is not one of c, cpp, python"):
        await judge_with(ScriptedExecutor()).judge(stdio("rust"), 1)
