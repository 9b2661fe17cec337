"""Judges programs that read stdin and print: one run per test, compared by a comparator or by a checker."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from msgspec import structs

from evalrun_executor.api import LEVELS, Level, Limits, RunReply, RunRequest
from evalrun_judge.cache.verdict_cache import Judged
from evalrun_judge.extraction import Extraction, SubmissionMode
from evalrun_judge.families.checker import checker_outcomes, checker_run, make_probes, settle_outcome
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.families.function import program_after
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.records import compare_runs, records_of_runs
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import (
    CheckerProgram,
    InvalidRequestError,
    JudgeRequest,
    StdioTest,
    StdioTests,
    refuse_append,
)
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import TestOutcome, TestRecord, compile_status, find_failure
from evalrun_judge.wave_runs import judge_in_waves, run_part
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.comparators import CHECKER
from evalrun_runtime.tracing import span

LARGE_BYTES = 256 * 1024
"""Larger outputs are compared in a thread, so that other requests continue meanwhile."""


@dataclass(frozen=True, slots=True)
class StdioPlan:
    """A program with a run per test."""

    run: RunRequest
    expected: tuple[bytes, ...]


def read_stdio(message: judge_pb2.JudgeRequest, suites: Suites) -> StdioTests:
    """Read the pairs of input and expected output; a named suite is cached. Raises InvalidRequestError."""
    cases = [StdioTest(test.input, test.expected_output) for test in message.stdio.tests]
    tests = StdioTests(cases, named=bool(message.suite_digest))
    if not tests.named:
        return tests
    if message.suite_digest != tests.digest:
        raise InvalidRequestError("suite_digest: it is not that of stdio.tests; send none, or theirs")
    return suites.keep(tests)


def plan_stdio(request: JudgeRequest, tests: StdioTests, extraction: Extraction) -> StdioPlan:
    """Return the runs of an extracted program. Pure."""
    limits, submission = request.limits, request.submission
    prelude = submission.prelude if submission.language == "python" else ""
    run = RunRequest(
        language=submission.language,
        code=program_after(prelude, extraction.code, SubmissionMode.AUTO),
        inputs=tests.inputs,
        limits=Limits(time_seconds=limits.time_seconds, memory_mib=limits.memory_mib, output_kib=limits.output_kib),
        stop_after_timeouts=request.stop_after_timeouts,
        inputs_digest=tests.inputs_digest if tests.named else b"",
    )
    return StdioPlan(run, tests.expected)


def cut_plan(plan: StdioPlan, tests: StdioTests, part: range) -> StdioPlan:
    """Return a plan that runs only a part of the tests. Pure."""
    run = structs.replace(
        plan.run,
        inputs=tests.inputs[part.start : part.stop],
        inputs_digest=tests.digest_part(part) if tests.named else b"",
    )
    return StdioPlan(run, plan.expected[part.start : part.stop])


class StdioFamily(Family[StdioPlan]):
    """Judges stdin/stdout tests."""

    FORMS: ClassVar[Mapping[str, FormReader]] = {"stdio": read_stdio}
    TESTS: ClassVar[tuple[type, ...]] = (StdioTests,)
    FORGEABLE: ClassVar[bool] = False

    def __init__(self, runners: Runners) -> None:
        self._pool = runners.pool

    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse a suite without tests; see `Family.check`."""
        if not cast(StdioTests, request.tests).inputs:
            raise InvalidRequestError("stdio.tests: there are none; a problem needs at least one")
        refuse_append(request)

    def plan(self, request: JudgeRequest, extraction: Extraction) -> StdioPlan:
        """Return the runs; see `Family.plan`."""
        return plan_stdio(request, cast(StdioTests, request.tests), extraction)

    def key(self, plan: StdioPlan, request: JudgeRequest) -> object:
        """Return language, program and the tests' digest; see `Family.key`."""
        return (plan.run.language, plan.run.code, plan.run.mode), cast(StdioTests, request.tests).digest

    async def judge(self, plan: StdioPlan, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Run the program on every input, and compare; see `Family.judge`."""
        count = len(plan.expected)

        async def judge_part(wave: range) -> tuple[list[TestRecord], Level]:
            part = plan if len(wave) == count else cut_plan(plan, cast(StdioTests, request.tests), wave)
            return await self._judge_part(part, request, on_begin, wave.start)

        return await judge_in_waves(count, request, judge_part)

    async def _judge_part(
        self, plan: StdioPlan, request: JudgeRequest, on_begin: Callable[[], None], first: int
    ) -> tuple[list[TestRecord], Level]:
        """Return the records of a plan whose first test has index `first`, and the lowest containment level used."""
        reply = await run_part(self._pool, plan.run, request, on_begin, begun=first > 0)
        ran = len(reply.runs)
        asked = structs.replace(plan.run, inputs=plan.run.inputs[:ran], inputs_digest=b"")
        plan = replace(plan, run=asked, expected=plan.expected[:ran])
        with span("compare", attributes={"tests": len(plan.expected)}):
            outcomes, level = await self._outcomes(plan, reply, request)
        return records_of_runs(plan.run.inputs, plan.expected, reply, outcomes, first=first), level

    async def _outcomes(
        self, plan: StdioPlan, reply: RunReply, request: JudgeRequest
    ) -> tuple[Sequence[TestOutcome], Level]:
        """Return the outcome of each run, and the lowest containment level that was used."""
        uncompiled = compile_status(reply.compile)
        if uncompiled is not None:
            return [TestOutcome(uncompiled)] * len(reply.runs), reply.level
        if request.checker is not None and request.comparator.name == CHECKER:
            return await self._check_outputs(plan, reply, request, request.checker)
        if sum(len(run.stdout) for run in reply.runs) <= LARGE_BYTES:
            return compare_runs(plan.expected, reply, request.comparator), reply.level
        return await asyncio.to_thread(compare_runs, plan.expected, reply, request.comparator), reply.level

    async def _check_outputs(
        self, plan: StdioPlan, reply: RunReply, request: JudgeRequest, checker: CheckerProgram
    ) -> tuple[Sequence[TestOutcome], Level]:
        failures = [find_failure(run) for run in reply.runs]
        cases = [
            (data, wanted, run.stdout)
            for data, wanted, run, failure in zip(plan.run.inputs, plan.expected, reply.runs, failures, strict=True)
            if failure is None
        ]
        if not cases:
            return [failure for failure in failures if failure is not None], reply.level
        said = await self._pool.run(checker_run(checker, cases, plan.run.limits), run=request.run, begun=True)
        outcomes = checker_outcomes(checker, said, cases)
        level = min(reply.level, said.level, key=LEVELS.index)
        crashed = [number for number, outcome in enumerate(outcomes) if outcome.status is TestStatus.API_ERROR]
        if crashed and said.compile.status == "ok":
            probes = [(number, probe) for number in crashed for probe in make_probes(cases[number])]
            known = [probe for _, probe in probes]
            again = await self._pool.run(checker_run(checker, known, plan.run.limits), run=request.run, begun=True)
            probed: dict[int, list[TestOutcome]] = defaultdict(list)
            for (number, _), outcome in zip(probes, checker_outcomes(checker, again, known), strict=True):
                probed[number].append(outcome)
            for number, found in probed.items():
                outcomes[number] = settle_outcome(outcomes[number], found, cases[number][1])
        decided = iter(outcomes)
        return [next(decided) if failure is None else failure for failure in failures], level
