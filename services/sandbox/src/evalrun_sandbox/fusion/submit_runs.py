"""Runs a planned submission on the executor and builds SandboxFusion's EvalResult."""

from collections.abc import Sequence
from dataclasses import replace

from evalrun_executor.api import Limits, RunReply, RunRequest
from evalrun_registry.comparators import match_lines
from evalrun_registry.languages import LANGUAGES, find_fusion
from evalrun_registry.limits import DEFAULT_LIMITS
from evalrun_sandbox.fusion import answers, demand
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.families.common_oj import shorten_case
from evalrun_sandbox.fusion.families.program_plan import Case, ProgramPlan
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import EvalResult, EvalTestCase, RunCodeResponse, RunStatus

PATIENCE_SECONDS = 120.0
"""Seconds for which a submission may wait for a slot. The stock client waits without end, its asynchronous version 300
s in all."""
_FIRST_CASES = 3
"""Cases that run first, because most wrong programs fail there; the stock server runs as many at once."""
_MAX_CASES = 4096


def divide_cases(count: int, *, together: bool) -> list[range]:
    """Return the ranges of cases for each call of the executor, in order.

    Args:
        count: number of cases.
        together: run the cases in as few calls as possible, e.g. because each call compiles the program once more.
    """
    first = 0 if together else min(_FIRST_CASES, count)
    starts = range(first, count, _MAX_CASES)
    rest = [range(start, min(start + _MAX_CASES, count)) for start in starts]
    return [range(first), *rest] if first else rest


class Submissions:
    def __init__(self, dispatcher: Dispatcher, pod_name: str | None) -> None:
        self._dispatcher = dispatcher
        self._pod_name = pod_name

    async def judge(self, plan: ProgramPlan, submission_id: int | str) -> EvalResult:
        """Run a plan and return its verdict. Raises BadRequest or TryAgain, which are not verdicts."""
        language = find_fusion(plan.language)
        if language is None or language.name not in self._dispatcher.languages:
            raise BadRequest(
                f"config.language: {plan.language} is not one of {', '.join(sorted(self._dispatcher.languages))}"
            )
        plan = replace(plan, language=language.name)
        tests = await (self._judge_by_status(plan) if plan.cases is None else self._judge_by_output(plan, plan.cases))
        return EvalResult(
            id=submission_id,
            accepted=all(test.passed for test in tests),
            extracted_code=plan.extracted_code,
            full_code=plan.full_code,
            tests=tests,
        )

    async def _judge_by_status(self, plan: ProgramPlan) -> list[EvalTestCase]:
        [answer] = await self._run(plan, [b""])
        return [EvalTestCase(passed=answer.status == RunStatus.SUCCESS, exec_info=answer)]

    async def _judge_by_output(self, plan: ProgramPlan, cases: Sequence[Case]) -> list[EvalTestCase]:
        tests: list[EvalTestCase] = []
        for batch in divide_cases(len(cases), together=LANGUAGES[plan.language].is_compiled or plan.run_all_cases):
            inputs = [cases[index]["input"]["stdin"].encode() for index in batch]
            for index, answer in zip(batch, await self._run(plan, inputs), strict=False):
                tests.append(_decide_case(cases[index], answer, full=plan.full_cases))
                if not tests[-1].passed and not plan.run_all_cases:
                    return tests
        return tests

    async def _run(self, plan: ProgramPlan, inputs: list[bytes]) -> list[RunCodeResponse]:
        """Return a response per input, in order. Inputs that were not run after a timeout have no response."""
        seconds = demand.seconds(plan.run_timeout)
        if seconds == 0 or (LANGUAGES[plan.language].is_compiled and demand.seconds(plan.compile_timeout) == 0):
            return [answers.answer_without_time(plan.language, plan.compile_timeout, self._pod_name)] * len(inputs)
        request = RunRequest(
            plan.language,
            plan.program,
            inputs,
            Limits(seconds, DEFAULT_LIMITS.memory_mib, DEFAULT_LIMITS.output_kib),
            stop_after_timeouts=0 if plan.run_all_cases else 1,
        )
        weight = len(plan.program) + sum(map(len, inputs))
        reply = await self._dispatcher.run(request, weight, PATIENCE_SECONDS)
        return self._make_answers(plan, reply)

    def _make_answers(self, plan: ProgramPlan, reply: RunReply) -> list[RunCodeResponse]:
        found = []
        for run in reply.runs:
            if reply.compile.status == "ok" and run.end == "not_run":
                break
            found.append(answers.response(plan.language, reply.compile, run, self._pod_name))
        return found


def _decide_case(case: Case, answer: RunCodeResponse, *, full: bool) -> EvalTestCase:
    stdout = answer.run_result.stdout if answer.run_result is not None else None
    passed = answer.status == RunStatus.SUCCESS and match_lines(case["output"]["stdout"], stdout or "")
    shown = {"input": case["input"], "output": case["output"]} if full or not passed else shorten_case(case)
    return EvalTestCase(passed=passed, exec_info=answer, test_info=shown)
