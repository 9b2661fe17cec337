"""The HTTP server, which returns one result per sample. Connects the other modules and decides nothing."""

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

import msgspec
from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry

from evalrun_client.judge_client import GrpcJudge, JudgeRefusedError
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.batches import GivenSample, UnreadableSample, read_batch, read_remote
from evalrun_reward.callers import CALLER, Callers, find_run
from evalrun_reward.graders import Graders, load_graders, make_grader_request, make_grader_result
from evalrun_reward.judge_calls import FairSlots, JudgeCaller, JudgeCalls, NoVerdictError
from evalrun_reward.metrics import ReplyKind, RewardMetrics
from evalrun_reward.openapi import document
from evalrun_reward.openrlhf import make_response, read_samples
from evalrun_reward.refusals import ErrorReply, json_response, refusal
from evalrun_reward.rewards import is_decided_by_failure, make_result, make_result_without_reward
from evalrun_reward.samples import SampleTests, load_known, make_judging, make_submission, read_ground_truth
from evalrun_reward.sessions.live import LiveInterpreters
from evalrun_reward.sessions.routes import SESSION_PATHS, SessionRoutes
from evalrun_reward.sessions.session import SessionLimits
from evalrun_reward.sessions.session_calls import SessionCalls
from evalrun_reward.sessions.store import SessionStore
from evalrun_reward.sessions.store_factory import open_store
from evalrun_reward.settings import RewardSettings
from evalrun_reward.wire import (
    BatchResponse,
    Health,
    OpenRlhfResponse,
    Outcome,
    Problem,
    Result,
    Sample,
    Shape,
)
from evalrun_runtime.admission import Admission, DrainingError, QueueFullError, Ticket
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.http_site import HttpServer
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.deadlines import DeadlineError, read_deadline, seconds_left, until
from evalrun_runtime.distribution import read_own_version
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.run_shares import make_declared_shares
from evalrun_runtime.tracing import HEADER, span

logger = logging.getLogger(__name__)

HEALTH_PATH = "/healthz"
_OPEN_PATHS = (HEALTH_PATH, "/openapi.json")
_CLEANUP_SECONDS = 10.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RewardService:
    """The service that `evalrun_runtime.process.run_service` runs.

    Args:
        settings: the service's settings.
        judge: calls the gateway.
        tests: finds or parses the tests of samples.
        metrics: the service's metrics.
        close: closes the connection to the judge.
        graders: graders of data sources that the judge's tests do not decide.
        sessions: stores multi-turn sessions; None: their calls explain how to enable them.
    """

    def __init__(
        self,
        settings: RewardSettings,
        judge: JudgeCaller,
        tests: SampleTests,
        metrics: RewardMetrics,
        close: Callable[[], Awaitable[None]],
        graders: Graders | None = None,
        sessions: SessionStore | None = None,
    ) -> None:
        self._settings = settings
        self._tokens = BearerTokens.load(settings.token, settings.token_file)
        self._callers = None if settings.callers_file is None else Callers(settings.callers_file)
        self._tests = tests
        self._metrics = metrics
        self._close = close
        self._graders = graders or Graders({})
        self._version = read_own_version()
        self._admission = Admission(
            lambda: settings.queue_limit, time.monotonic, max_bytes=settings.queue_mib * 1024 * 1024
        )
        shares = make_declared_shares(settings.share, settings.priority, time.monotonic)
        places = FairSlots(settings.in_flight, shares)
        named = set[str]() if shares is None else {*shares.weights, *shares.priorities}
        metrics.declare(lambda run: run in named or (self._callers is not None and run in self._callers.runs))
        metrics.watch(lambda: places.waiting, lambda: places.taken)
        self._calls = JudgeCalls(
            judge,
            places,
            settings.attempts,
            clock=time.monotonic,
            chance=random.Random(),  # noqa: S311 - jitter
            on_retry=metrics.count_retry,
            on_judged=metrics.add_judge_seconds,
        )
        self._store = sessions
        self._live: LiveInterpreters | None = None
        self._sessions: dict[str, Callable[[web.Request], Awaitable[msgspec.Struct]]] = dict.fromkeys(
            SESSION_PATHS, self._refuse_sessions
        )
        if sessions is not None:
            limits = SessionLimits(
                settings.max_turns, settings.max_session_characters, settings.max_observation_characters
            )
            if settings.live_sandbox:
                tokens = BearerTokens.load(settings.live_sandbox_token, settings.live_sandbox_token_file)
                tls = TlsFiles.load(settings.judge_tls_folder)
                self._live = LiveInterpreters(settings.live_sandbox, tokens, tls, settings.live_sandbox_tls_name)
            cache_bytes = settings.cache_mib * 1024 * 1024
            calls = SessionCalls(sessions, tests, self._calls, limits, cache_bytes, metrics.count_session, self._live)
            self._sessions = SessionRoutes(calls, self._place, settings.deadline_seconds).paths()
        self._server: HttpServer | None = None

    async def start(self) -> str:
        """Listen and return the address. Raises OSError if the port is taken."""
        self._server = HttpServer(self.application(), self._settings, (HEALTH_PATH, self._healthz))
        return await self._server.start()

    async def stop(self, grace: float) -> None:
        """Accept no new requests, and wait up to `grace` seconds for requests in flight."""
        self._admission.drain()
        if self._server is not None:
            async with asyncio.timeout(grace + _CLEANUP_SECONDS):
                await self._server.stop()
        await self._close()
        if self._live is not None:
            await self._live.close()
        if self._store is not None:
            await self._store.close()

    def application(self) -> web.Application:
        application = web.Application(
            client_max_size=self._settings.max_request_mib * 1024 * 1024, middlewares=[self._check_token]
        )
        application.router.add_post("/v1/rewards", self._make_handler(self._rewards))
        application.router.add_post("/get_reward", self._make_handler(self._get_reward))
        for path, work in self._sessions.items():
            application.router.add_post(path, self._make_handler(work))
        application.router.add_get(HEALTH_PATH, self._healthz)
        application.router.add_get("/openapi.json", self._openapi)
        return application

    @web.middleware
    async def _check_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        tokens, callers = self._tokens, self._callers
        if request.path in _OPEN_PATHS or (tokens is None and callers is None):
            return await handler(request)
        given = request.headers.get("Authorization", "")
        if callers is not None and (run := callers.find_run(given)) is not None:
            request[CALLER] = run
            return await handler(request)
        if tokens is not None and tokens.accept(given):
            return await handler(request)
        return json_response(Problem("send the service's token as 'Authorization: Bearer ...'"), 401)

    async def _healthz(self, _: web.Request) -> web.Response:
        draining = self._admission.draining
        return json_response(Health("draining" if draining else "ok", self._version), 503 if draining else 200)

    async def _openapi(self, _: web.Request) -> web.Response:
        return json_response(document(self._version), 200)

    def _make_handler(self, work: Callable[[web.Request], Awaitable[msgspec.Struct]]) -> Handler:
        """Return a handler that sends the result of `work`, or a message if `work` refuses."""

        async def handle(request: web.Request) -> web.Response:
            started, reply = time.monotonic(), ReplyKind.CANCELLED
            try:
                with span("reward", request.headers.get(HEADER, "")):
                    body = await work(request)
                reply = ReplyKind.DONE
                return json_response(body, 200)
            except ErrorReply as refused:
                reply = refused.reply
                return refusal(refused)
            except (msgspec.DecodeError, RecursionError, BadInputError) as error:
                reply = ReplyKind.MALFORMED
                return json_response(Problem(f"body: {error}", unreadable=True), 400)
            except web.HTTPRequestEntityTooLarge:
                reply = ReplyKind.TOO_LARGE
                limit = self._settings.max_request_mib
                return json_response(
                    Problem(f"the body is larger than {limit} MiB (--max-request-mib): send less"), 413
                )
            finally:
                self._metrics.observe_request(reply, time.monotonic() - started)

        return handle

    async def _rewards(self, request: web.Request) -> BatchResponse:
        body = await request.read()
        batch = read_batch(body)
        run = find_run(request, batch.run)
        results = await self._judge_all(batch.samples, run, batch.shape, len(body), request)
        counts = Counter(result.outcome for result in results)
        return BatchResponse(results, counts[Outcome.JUDGED], counts[Outcome.NOT_JUDGED], counts[Outcome.INVALID])

    async def _get_reward(self, request: web.Request) -> OpenRlhfResponse:
        body = await request.read()
        samples = read_samples(read_remote(body))
        shape = next((known for known in get_args(Shape) if known == request.query.get("shape", "dense")), None)
        if shape is None:
            raise BadInputError("query parameter shape: write dense or sparse")
        run = find_run(request, request.query.get("run", ""))
        results = await self._judge_all(samples, run, shape, len(body), request)
        answer = make_response(results, self._settings.not_judged_reward)
        if isinstance(answer, OpenRlhfResponse):
            return answer
        if answer.outcome is Outcome.INVALID:
            raise ErrorReply(422, ReplyKind.MALFORMED, f"label {answer.id}: {answer.reason}")
        raise ErrorReply(503, ReplyKind.NOT_JUDGED, f"query {answer.id} was not judged: {answer.reason}", 1.0)

    async def _judge_all(
        self, samples: Sequence[GivenSample], run: str, shape: Shape, size: int, request: web.Request
    ) -> list[Result]:
        """Judge the samples of a request. Raises ErrorReply."""
        if len(samples) > self._settings.max_samples:
            limit = self._settings.max_samples
            raise ErrorReply(
                413,
                ReplyKind.TOO_LARGE,
                f"{len(samples)} samples, and a request takes {limit} (--max-samples): send several",
            )
        now = asyncio.get_running_loop().time()
        deadline = min(now + self._settings.deadline_seconds, read_deadline(request.headers) or math.inf)
        ticket = self._enter(run, size, len(samples))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._judge(sample, number, run, shape, deadline))
                    for number, sample in enumerate(samples)
                ]
        finally:
            ticket.leave()
        return [task.result() for task in tasks]

    async def _refuse_sessions(self, _: web.Request) -> msgspec.Struct:
        message = "this service has no sessions: start it with --session-store, a file's path or redis://host:port/db"
        raise ErrorReply(501, ReplyKind.MALFORMED, message)

    @contextmanager
    def _place(self, run: str, size: int) -> Iterator[None]:
        """Hold a place in the queue while the block runs. Raises ErrorReply."""
        ticket = self._enter(run, size, 1)
        try:
            yield
        finally:
            ticket.leave()

    def _enter(self, run: str, size: int, samples: int) -> Ticket:
        try:
            ticket = self._admission.enter(run, size, samples)
        except QueueFullError as error:
            message = "the queue is full, or this run holds its share of it: come back after Retry-After"
            raise ErrorReply(429, ReplyKind.QUEUE_FULL, message, error.retry_after_seconds) from error
        except DrainingError as error:
            raise ErrorReply(503, ReplyKind.DRAINING, "this replica is draining: ask another one", 1.0) from error
        ticket.begin()
        return ticket

    async def _judge(self, sample: GivenSample, number: int, run: str, shape: Shape, deadline: float) -> Result:
        if isinstance(sample, UnreadableSample):
            result = make_result_without_reward(sample.id, Outcome.INVALID, sample.reason)
        else:
            result = await self._result(sample, number, run, shape, deadline)
        self._metrics.count_sample(result.outcome, run)
        return result

    async def _result(self, sample: Sample, number: int, run: str, shape: Shape, deadline: float) -> Result:
        grader = self._graders.of(sample)
        try:
            if grader is None:
                tests, submission = self._tests.of(sample, number), make_submission(sample, number)
            else:
                truth = read_ground_truth(sample, number, parsed=False)
                tests = make_grader_request(grader, sample, truth, self._tests.judging)
                # The request already has the grader's submission.
                submission = judge_pb2.Submission()
        except BadInputError as error:
            return make_result_without_reward(sample.id, Outcome.INVALID, str(error))
        try:
            async with until(deadline):
                verdict = await self._calls.verdict(
                    tests,
                    run,
                    submission,
                    seconds_left,
                    stop_at_failure=grader is None and is_decided_by_failure(shape),
                )
            if grader is not None:
                return make_grader_result(sample.id, grader, verdict)
            return make_result(sample.id, verdict, shape)
        except DeadlineError:
            return make_result_without_reward(sample.id, Outcome.NOT_JUDGED, "no verdict by the request's deadline")
        except NoVerdictError as error:
            outcome = Outcome.INVALID if error.invalid else Outcome.NOT_JUDGED
            return make_result_without_reward(sample.id, outcome, str(error))
        except JudgeRefusedError as error:
            logger.error("%s: set EVALRUN_REWARD_JUDGE_TOKEN to the judge's token", error)
            return make_result_without_reward(
                sample.id, Outcome.NOT_JUDGED, "the judge refuses this service: its log says why"
            )


def build_service(settings: RewardSettings, registry: CollectorRegistry = REGISTRY) -> RewardService:
    """Create the service that the settings describe. Called inside the running loop. Raises BadInputError."""
    tests = SampleTests(
        load_known(settings.problems),
        make_judging(settings.comparator, settings.time_limit),
        settings.cache_mib * 1024 * 1024,
    )
    graders = load_graders(settings.grader)
    judge = GrpcJudge(
        settings.judge,
        BearerTokens.load(settings.judge_token, settings.judge_token_file),
        TlsFiles.load(settings.judge_tls_folder),
    )
    store = None
    if settings.session_store is not None:
        store = open_store(
            settings.session_store.get_secret_value(),
            max_sessions=settings.max_sessions,
            idle_seconds=settings.session_idle_seconds,
        )
    return RewardService(settings, judge, tests, RewardMetrics(registry), judge.close, graders, store)
