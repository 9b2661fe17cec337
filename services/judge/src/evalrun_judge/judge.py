"""Judges a request: admission, plan, runs, comparison."""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from evalrun_judge.cache.verdict_cache import VerdictCache
from evalrun_judge.cache.verdict_key import JudgeIdentity, verdict_key
from evalrun_judge.extraction import Extraction
from evalrun_judge.families.family import Family
from evalrun_judge.families.registry import Families
from evalrun_judge.metrics import JudgeMetrics, RequestOutcome
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.records import records_without_run
from evalrun_judge.sandboxes import RunRefusedError
from evalrun_judge.status import ForgeableCause, TestStatus
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, check_request, extract_program
from evalrun_judge.verdict import Verdict, make_verdict
from evalrun_registry.languages import LANGUAGES
from evalrun_runtime.admission import Admission, DrainingError, QueueFullError, Ticket
from evalrun_runtime.deadlines import DeadlineError, until


class Judge:
    """Returns verdicts on submissions."""

    def __init__(
        self,
        pool: SandboxPool,
        families: Families,
        admission: Admission,
        metrics: JudgeMetrics,
        clock: Callable[[], float],
        cache: VerdictCache,
        identity: JudgeIdentity,
    ) -> None:
        """Create the judge.

        Args:
            pool: runs the programs.
            families: the test families.
            admission: admits requests.
            metrics: the gateway's metrics.
            clock: seconds, monotonic.
            cache: earlier verdicts.
            identity: the judge's identity, for the cache.
        """
        self._cache, self._identity = cache, identity
        self._pool = pool
        self._families = families
        self._admission = admission
        self._metrics = metrics
        self._clock = clock

    async def judge(self, request: JudgeRequest, deadline: float | None = None) -> Verdict:
        """Judge a request.

        Args:
            request: the request.
            deadline: time on the event loop's clock at which all work for it ends; None: no deadline.

        Raises:
            DeadlineError: the deadline passed before a verdict; nothing is known about the program.
            InvalidRequestError: the request can never be judged.
            QueueFullError: come back later.
            DrainingError: ask another gateway.
            NoSandboxError: no sandbox could run the program; nothing is known about it.
        """
        arrived = self._clock()
        outcome = RequestOutcome.CANCELLED
        try:
            self._check(request)
            ticket = self._admission.enter(request.run, request.size)
            try:
                async with until(deadline):
                    verdict = await self._judge_admitted(request, ticket)
            finally:
                ticket.leave()
            outcome = _classify_verdict(verdict)
            statuses = [test.status for test in verdict.tests]
            for status in set(statuses):
                self._metrics.count_tests(status, statuses.count(status))
            return verdict
        except RunRefusedError as error:
            outcome = RequestOutcome.INVALID
            raise InvalidRequestError(f"the sandbox refuses it: {error}") from error
        except InvalidRequestError:
            outcome = RequestOutcome.INVALID
            raise
        except QueueFullError:
            outcome = RequestOutcome.QUEUE_FULL
            raise
        except (NoSandboxError, DrainingError):
            outcome = RequestOutcome.UNAVAILABLE
            raise
        except DeadlineError:
            outcome = RequestOutcome.EXPIRED
            raise
        finally:
            self._metrics.observe_request(outcome, self._clock() - arrived)

    def _check(self, request: JudgeRequest) -> None:
        info = self._pool.describe()
        check_request(request, [*LANGUAGES] if info is None else info.languages)
        self._families.find_family(request.tests).check(request, info)

    async def _judge_admitted(self, request: JudgeRequest, ticket: Ticket) -> Verdict:
        extraction = extract_program(request.submission, request.tests.sought_function)
        if not extraction.code.strip():
            return self._empty(request, extraction)
        return await self._judge_extracted(request, ticket, extraction)

    async def _judge_extracted(self, request: JudgeRequest, ticket: Ticket, extraction: Extraction) -> Verdict:
        family = self._families.find_family(request.tests)
        plan = family.plan(request, extraction)
        if plan is None:
            return self._empty(request, extraction.drop_code())
        info, depends = self._pool.describe(), None
        # Before any sandbox has replied, the sandboxes' identity is unknown, so nothing is cached.
        if info is not None and self._cache.on and not request.fresh:
            depends = family.key(plan, request)
        if info is None or depends is None:
            judged, cached = await family.judge(plan, request, ticket.begin), False
        else:
            key = verdict_key(depends, request, self._identity, info, must_compile=extraction.must_compile)
            judged, cached = await self._cache.through(key, lambda: family.judge(plan, request, ticket.begin))
        if extraction.otherwise and not judged.compiled:
            return await self._judge_extracted(request, ticket, extraction.fall_back())
        if extraction.must_compile and not judged.compiled:
            return self._empty(request, extraction.drop_code())
        if judged.code is not None:
            extraction = structs.replace(extraction, code=judged.code)
        return make_verdict(
            judged.records,
            extraction,
            judged.level,
            ticket.queue_seconds,
            cached=cached,
            complete=judged.complete,
            forgeable=_find_cause(family),
        )

    def _empty(self, request: JudgeRequest, extraction: Extraction) -> Verdict:
        """Return the verdict on a completion without code; the level is the pool's, because nothing ran."""
        info = self._pool.describe()
        records = records_without_run(request.tests, TestStatus.COMPILE_ERROR, "nothing to run")
        forgeable = _find_cause(self._families.find_family(request.tests))
        return make_verdict(records, extraction, "none" if info is None else info.level, 0.0, forgeable=forgeable)


def _find_cause(family: Family[Any]) -> ForgeableCause | None:
    return ForgeableCause.SHARED_PROCESS if family.FORGEABLE else None


def _classify_verdict(verdict: Verdict) -> RequestOutcome:
    if not verdict.judged:
        return RequestOutcome.NOT_JUDGED
    return RequestOutcome.ACCEPTED if verdict.accepted else RequestOutcome.REJECTED
