"""One request from its arrival to its verdict: let in, planned, run, compared."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, get_args

from msgspec import structs

from evalrun_judge.admission import Admission, DrainingError, QueueFullError, Ticket
from evalrun_judge.checker import checker_outcomes, checker_run
from evalrun_judge.comparison import ComparatorName
from evalrun_judge.extraction import Extraction
from evalrun_judge.metrics import JudgeMetrics, Outcome
from evalrun_judge.plan import FunctionPlan, Language, NothingToRun, StdioPlan, SubmitPlan, plan_of, without_code
from evalrun_judge.pool import NoSandboxError, SandboxPool
from evalrun_judge.records import compared, records_of_runs, records_without_run
from evalrun_judge.sandboxes import RunRefusedError
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import CheckerProgram, InvalidRequestError, JudgeRequest, SubmitTests, check_request
from evalrun_judge.submitted import records_of_submission
from evalrun_judge.verdict import TestOutcome, TestRecord, Verdict, compile_status, failure_of, make_verdict
from evalrun_judge.verdict_cache import Judged, VerdictCache, is_stable
from evalrun_judge.verdict_key import JudgeIdentity, verdict_key
from evalrun_runtime.deadlines import DeadlineError, until
from evalrun_runtime.tracing import span
from evalrun_sandbox.api import LEVELS, Level, RunReply

LARGE_BYTES = 256 * 1024
"""Outputs above this are compared in a thread, so that other requests go on meanwhile."""


class FunctionTests(Protocol):
    """Judges function tests: the candidate in the sandbox, the assertions in a contained child of the gateway."""

    async def start(self) -> None:
        """Make the child ready. Raises BadInputError where this machine cannot contain it as required."""
        ...

    async def close(self) -> None:
        """End the child."""
        ...

    async def judge(
        self, plan: FunctionPlan, request: JudgeRequest, on_begin: Callable[[], None]
    ) -> tuple[list[TestRecord], Level]:
        """Give the tests' records and the least containment level of any part.

        Raises:
            NoSandboxError: the retry budget is spent.
            RunRefusedError: the request can never be served.
        """
        ...


class Judge:
    """Gives verdicts."""

    def __init__(
        self,
        pool: SandboxPool,
        function_tests: FunctionTests,
        admission: Admission,
        metrics: JudgeMetrics,
        clock: Callable[[], float],
        cache: VerdictCache,
        identity: JudgeIdentity,
    ) -> None:
        """Make it.

        Args:
            pool: where programs run.
            function_tests: judges function tests.
            admission: who is let in.
            metrics: what is counted.
            clock: seconds, monotonic.
            cache: verdicts reached before.
            identity: who judges, for the cache.
        """
        self._cache, self._identity = cache, identity
        self._pool = pool
        self._function_tests = function_tests
        self._admission = admission
        self._metrics = metrics
        self._clock = clock

    async def judge(self, request: JudgeRequest, deadline: float | None = None) -> Verdict:
        """Judge one request.

        Args:
            request: what to judge.
            deadline: by the event loop's clock: when whatever is done for it ends; None: when there is a verdict.

        Raises:
            DeadlineError: the deadline passed before there was one; nothing is known about the program.
            InvalidRequestError: it can never be judged.
            QueueFullError: come back later.
            DrainingError: go elsewhere.
            NoSandboxError: no sandbox could say what the program does; nothing is known about it.
        """
        arrived = self._clock()
        outcome = Outcome.CANCELLED
        try:
            self._check(request)
            ticket = self._admission.enter(request.run, request.size)
            try:
                async with until(deadline):
                    verdict = await self._judge_admitted(request, ticket)
            finally:
                ticket.leave()
            outcome = _outcome_of(verdict)
            statuses = [test.status for test in verdict.tests]
            for status in set(statuses):
                self._metrics.count_tests(status, statuses.count(status))
            return verdict
        except RunRefusedError as error:
            outcome = Outcome.INVALID
            raise InvalidRequestError(f"the sandbox refuses it: {error}") from error
        except InvalidRequestError:
            outcome = Outcome.INVALID
            raise
        except QueueFullError:
            outcome = Outcome.QUEUE_FULL
            raise
        except (NoSandboxError, DrainingError):
            outcome = Outcome.UNAVAILABLE
            raise
        except DeadlineError:
            outcome = Outcome.EXPIRED
            raise
        finally:
            self._metrics.observe_request(outcome, self._clock() - arrived)

    def _check(self, request: JudgeRequest) -> None:
        info = self._pool.describe()
        check_request(request, get_args(Language) if info is None else info.languages)
        if isinstance(request.tests, SubmitTests) and info is not None and not info.submits:
            raise InvalidRequestError(
                f"tests.submit: this gateway's sandboxes ({info.backend}) have no datasets of their own: ask one with "
                "backend SandboxFusion, or send the tests"
            )

    async def _judge_admitted(self, request: JudgeRequest, ticket: Ticket) -> Verdict:
        plan = plan_of(request)
        if isinstance(plan, NothingToRun):
            return self._empty(request, plan.extraction)
        if isinstance(plan, SubmitPlan):
            return await self._submitted(plan, request, ticket)
        info = self._pool.describe()
        # Before any sandbox has answered nobody knows what judges.
        if info is None or request.fresh or not self._cache.on:
            judged, cached = await self._judged(plan, request, ticket), False
        else:
            key = verdict_key(plan, request, self._identity, info)
            judged, cached = await self._cache.through(key, lambda: self._judged(plan, request, ticket))
        if judged.no_code:
            return self._empty(request, without_code(plan).extraction)
        return make_verdict(judged.records, plan.extraction, judged.level, ticket.queue_seconds, cached=cached)

    async def _submitted(self, plan: SubmitPlan, request: JudgeRequest, ticket: Ticket) -> Verdict:
        """Let a server that has the tests judge. Never cached: it may change them, and who would know."""
        reply = await self._pool.submit(plan.call, run=request.run, on_slot=ticket.begin)
        records = records_of_submission(reply)
        if plan.extraction.must_compile and all(test.status is TestStatus.COMPILE_ERROR for test in records):
            return self._empty(request, without_code(plan).extraction)
        extraction = structs.replace(plan.extraction, code=reply.code)
        return make_verdict(
            records, extraction, reply.level, ticket.queue_seconds, complete=reply.complete, forgeable=True
        )

    async def _judged(self, plan: StdioPlan | FunctionPlan, request: JudgeRequest, ticket: Ticket) -> Judged:
        """Run what is planned and say what came of each test."""
        match plan:
            case StdioPlan():
                reply = await self._pool.run(plan.run, run=request.run, on_slot=ticket.begin)
                if plan.extraction.must_compile and reply.compile.status == "error":
                    return Judged((), reply.level, no_code=True)
                with span("compare", attributes={"tests": len(plan.expected)}):
                    outcomes, level = await self._outcomes(plan, reply, request)
                records = records_of_runs(plan.run.inputs, plan.expected, reply, outcomes)
            case FunctionPlan():
                records, level = await self._function_tests.judge(plan, request, ticket.begin)
                if plan.extraction.must_compile and all(test.status is TestStatus.COMPILE_ERROR for test in records):
                    return Judged((), level, no_code=True)
        return Judged(tuple(records), level, stable=is_stable(records))

    async def _outcomes(
        self, plan: StdioPlan, reply: RunReply, request: JudgeRequest
    ) -> tuple[Sequence[TestOutcome], Level]:
        """Say what each run means, and the least containment level of whatever ran."""
        uncompiled = compile_status(reply.compile)
        if uncompiled is not None:
            return [TestOutcome(uncompiled)] * len(reply.runs), reply.level
        if request.checker is not None and request.comparator.name is ComparatorName.CHECKER:
            return await self._checked(plan, reply, request, request.checker)
        if sum(len(run.stdout) for run in reply.runs) <= LARGE_BYTES:
            return compared(plan.expected, reply, request.comparator), reply.level
        return await asyncio.to_thread(compared, plan.expected, reply, request.comparator), reply.level

    async def _checked(
        self, plan: StdioPlan, reply: RunReply, request: JudgeRequest, checker: CheckerProgram
    ) -> tuple[Sequence[TestOutcome], Level]:
        """Let the checker decide the runs that did not fail by themselves."""
        failures = [failure_of(run) for run in reply.runs]
        cases = [
            (data, wanted, run.stdout)
            for data, wanted, run, failure in zip(plan.run.inputs, plan.expected, reply.runs, failures, strict=True)
            if failure is None
        ]
        if not cases:
            return [failure for failure in failures if failure is not None], reply.level
        said = await self._pool.run(checker_run(checker, cases, plan.run.limits), run=request.run, begun=True)
        decided = iter(checker_outcomes(checker, said, cases))
        level = min(reply.level, said.level, key=LEVELS.index)
        return [next(decided) if failure is None else failure for failure in failures], level

    def _empty(self, request: JudgeRequest, extraction: Extraction) -> Verdict:
        """Nothing ran, or nothing that is code: the level is the pool's own."""
        info = self._pool.describe()
        records = records_without_run(request.tests, TestStatus.COMPILE_ERROR, "nothing to run")
        forgeable = isinstance(request.tests, SubmitTests)
        return make_verdict(records, extraction, "none" if info is None else info.level, 0.0, forgeable=forgeable)


def _outcome_of(verdict: Verdict) -> Outcome:
    if not verdict.judged:
        return Outcome.NOT_JUDGED
    return Outcome.ACCEPTED if verdict.accepted else Outcome.REJECTED
