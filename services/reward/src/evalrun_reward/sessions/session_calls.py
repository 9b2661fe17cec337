"""The four calls of sessions: the store holds the state, the judge runs actions and decides the reward.

A replica holds nothing of a session. Each change names the version that it follows, so of two replicas with the same
call one writes, and the other finds the written version; a replica that is killed leaves nothing half done. Programs
may run twice, but never count twice.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from evalrun_api.v1alpha1 import Dataset
from evalrun_client.judge_request import Answer, judge_request
from evalrun_data.records import Problem, ProblemComparator, StdioTests
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.judge_calls import JudgeCalls, NoVerdictError, ProblemRequest
from evalrun_reward.metrics import Step
from evalrun_reward.rewards import explain_no_reward, is_decided_by_failure, make_result
from evalrun_reward.samples import SampleTests, make_submission, tests_of_request
from evalrun_reward.sessions.live import (
    Interpreter,
    InterpreterLostError,
    LiveInterpreters,
    NoInterpreterError,
    describe_execution,
    describe_loss,
)
from evalrun_reward.sessions.messages import Action, ActionRequest, RewardResponse, StartRequest, render_id
from evalrun_reward.sessions.observation import append_submission, cut, has_program, render_observation
from evalrun_reward.sessions.session import (
    NotJudgedError,
    Session,
    SessionLimits,
    Suite,
    Turn,
    TurnConflictError,
    UnknownSessionError,
    find_replay,
    is_sid,
    make_sid,
)
from evalrun_reward.sessions.store import SessionStore, StoreNeedsSuiteError
from evalrun_reward.wire import Outcome, Sample
from evalrun_runtime.deadlines import seconds_left
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.recently_used import RecentlyUsed

SHOWN_TESTS = 3
"""Public tests that an action runs on."""
MAX_SHOWN_CHARACTERS = 4096
"""Maximum characters of a shown test's input and of its output; tests with longer texts are not shown."""


NO_LIVE_SANDBOX = "action: live needs a sandbox with live sessions: start the service with --live-sandbox URL"


@dataclass(frozen=True, slots=True)
class _Instance:
    digest: bytes
    suite: bytes
    """The encoded suite."""
    action: Action
    """Work of /process_action where the caller names none."""
    language: str


class SessionCalls:
    """Answers the four calls.

    Args:
        store: stores the sessions.
        tests: finds or parses the tests of an instance.
        calls: asks the judge.
        limits: limits of a session.
        cache_bytes: memory for suites.
        on_step: called whenever a session reaches a step.
        live: gives sessions their interpreters; None: the action live is refused.
    """

    def __init__(
        self,
        store: SessionStore,
        tests: SampleTests,
        calls: JudgeCalls,
        limits: SessionLimits,
        cache_bytes: int,
        on_step: Callable[[Step], None] = lambda step: None,
        live: LiveInterpreters | None = None,
    ) -> None:
        self._store = store
        self._tests = tests
        self._calls = calls
        self._limits = limits
        self._on_step = on_step
        self._live = live
        self._instances: RecentlyUsed[tuple[str, str], _Instance] = RecentlyUsed(
            cache_bytes // 3, lambda instance: len(instance.suite)
        )
        self._suites: RecentlyUsed[bytes, tuple[ProblemRequest, Suite]] = RecentlyUsed(
            cache_bytes * 2 // 3,
            # A suite is held as bytes and parsed.
            lambda held: 2 * held[0].size,
        )

    async def start(self, asked: StartRequest) -> Session:
        """Return the new session. Raises BadInputError, SessionError or StoreError."""
        instance = self._instance(asked)
        session = Session(
            make_sid(asked.run, asked.request_id),
            render_id(asked.instance_hash),
            instance.digest,
            run=asked.run,
            language=make_submission(Sample("", language=asked.language), 0).language,
            shape=asked.shape,
            action=instance.action if asked.action is msgspec.UNSET else asked.action,
        )
        if session.action == "live" and self._live is None:
            raise BadInputError(NO_LIVE_SANDBOX)
        language = session.language or instance.language
        if session.action == "live" and language != "python":
            raise BadInputError(f"action: live runs Python, not {language}: write run or submit")
        try:
            held = await self._store.create(session, None)
        except StoreNeedsSuiteError:
            held = await self._store.create(session, instance.suite)
        if (held.instance, held.suite, held.shape, held.action) != (
            session.instance,
            session.suite,
            session.shape,
            session.action,
        ):
            raise TurnConflictError(f"request_id {asked.request_id} started another session: choose a new one")
        if held is session:
            self._on_step(Step.STARTED)
        return held

    async def get(self, sid: str) -> Session:
        """Return a session. Raises UnknownSessionError or StoreError."""
        session = await self._store.get(sid) if is_sid(sid) else None
        if session is None:
            raise UnknownSessionError(sid)
        return session

    async def act(self, session: Session, asked: ActionRequest) -> str:
        """Run an action's program and return the observation, once per turn. Raises SessionError or StoreError."""
        turn: Turn | None = None
        interpreter: Interpreter | None = None
        while True:
            known = find_replay(session, asked.content, asked.turn, self._limits)
            if known is not None:
                return known
            # A run in an interpreter belongs to the session's state at that time: in a new state the code runs again.
            if turn is None or session.action == "live":
                turn, interpreter = await self._run(session, asked.content)
            if await self._store.replace(session.with_turn(turn, interpreter)):
                return turn.observation
            # Another call changed the session meanwhile. The loop ends, because in each round some call succeeds.
            session = await self.get(session.sid)

    async def close(self, session: Session) -> Session:
        """Close the session, so that it takes no more actions, and return it. Raises SessionError or StoreError."""
        while not session.closed:
            closed = session.as_closed()
            if await self._store.replace(closed):
                if self._live is not None and closed.interpreter is not None:
                    await self._live.end(closed.interpreter)
                return closed
            session = await self.get(session.sid)
        return session

    async def reward(self, session: Session) -> RewardResponse:
        """Judge the session's completion once, and store the reward. Raises SessionError or StoreError."""
        session = await self.close(session)
        if session.reward is not None:
            return session.reward
        tests, _ = await self._suite(session)
        verdict = await self._verdict(
            tests, session, session.answer, stop_at_failure=is_decided_by_failure(session.shape)
        )
        result = make_result(session.sid, verdict, session.shape)
        if result.outcome is not Outcome.JUDGED or result.reward is None:
            raise NotJudgedError(result.reason)
        reward = RewardResponse(
            result.reward, result.f2p_count, result.f2p_total, result.p2p_count, result.p2p_total,
            bool(result.accepted), result.final_status, len(session.turns),
        )  # fmt: skip
        if await self._store.replace(session.with_reward(reward)):
            self._on_step(Step.REWARDED)
            return reward
        # Another replica was first, or the session expired while it was judged.
        held = await self._store.get(session.sid)
        return reward if held is None or held.reward is None else held.reward

    def _instance(self, asked: StartRequest) -> "_Instance":
        """Return the tests of a new session, cached for known problems. Raises BadInputError."""
        name = render_id(asked.instance_hash)
        if not name:
            raise BadInputError("instance_hash: it is empty: name a problem of --problems")
        if asked.ground_truth is not msgspec.UNSET:
            return self._made(Sample("", ground_truth=asked.ground_truth, language=asked.language))
        key = (asked.dataset, name)
        held = self._instances.get(key)
        if held is None:
            held = self._made(Sample("", dataset=asked.dataset, problem_id=name))
            self._instances.put(key, held)
        return held

    def _made(self, sample: Sample) -> "_Instance":
        problem = self._tests.find_problem(sample, 0)
        request = self._tests.make_problem_tests(problem).whole.SerializeToString(deterministic=True)
        suite = msgspec.msgpack.encode(Suite(request, _shown(problem)))
        action: Action = "run" if isinstance(problem.ground_truth, StdioTests) else "submit"
        return _Instance(hashlib.sha256(suite).digest(), suite, action, problem.language)

    async def _run(self, session: Session, content: str) -> tuple[Turn, Interpreter | None]:
        tests, suite = await self._suite(session)
        verdict = await self._verdict(_make_run(tests, suite, self._tests.judging), session, content)
        if not verdict.judged:
            raise NotJudgedError(explain_no_reward(verdict))
        limit = self._limits.max_observation
        if session.action == "live" and has_program(verdict):
            observation, interpreter = await self._execute(session, verdict.code)
            return Turn(content, cut(observation, limit), has_program=True), interpreter
        observation = render_observation(verdict, suite.shown, limit)
        if session.action == "submit" and has_program(verdict):
            judged = await self._verdict(tests, session, content)
            if not judged.judged:
                raise NotJudgedError(explain_no_reward(judged))
            observation = append_submission(observation, judged, limit)
        return Turn(content, observation, has_program(verdict)), session.interpreter

    async def _execute(self, session: Session, code: str) -> tuple[str, Interpreter | None]:
        """Execute code in the session's interpreter. If that has ended, use a new one, and tell the model so."""
        if self._live is None:
            raise NotJudgedError(NO_LIVE_SANDBOX)
        told = ""
        try:
            interpreter = session.interpreter or await self._live.open()
            try:
                done = await self._live.execute(interpreter, code)
            except InterpreterLostError as lost:
                if session.interpreter is not None:
                    told = describe_loss(str(lost)) + "\n"
                interpreter = await self._live.open()
                done = await self._live.execute(interpreter, code)
        except (NoInterpreterError, InterpreterLostError) as error:
            raise NotJudgedError(f"no live interpreter: {error}") from error
        goes_on = msgspec.structs.replace(interpreter, executions=interpreter.executions + 1)
        return told + describe_execution(done), goes_on if done.state == "kept" else None

    async def _verdict(
        self, tests: ProblemRequest, session: Session, text: str, *, stop_at_failure: bool = False
    ) -> judge_pb2.Verdict:
        submission = make_submission(Sample(text, language=session.language), 0)
        try:
            return await self._calls.verdict(
                tests, session.run, submission, seconds_left, stop_at_failure=stop_at_failure
            )
        except NoVerdictError as error:
            raise NotJudgedError(str(error), invalid=error.invalid) from error

    async def _suite(self, session: Session) -> tuple[ProblemRequest, Suite]:
        held = self._suites.get(session.suite)
        if held is None:
            encoded = await self._store.suite(session.suite)
            if encoded is None:
                raise UnknownSessionError(session.sid)
            suite = msgspec.msgpack.decode(encoded, type=Suite)
            held = (tests_of_request(judge_pb2.JudgeRequest.FromString(suite.request)), suite)
            self._suites.put(session.suite, held)
        return held


def _shown(problem: Problem) -> tuple[tuple[str, str], ...]:
    """Return the public tests, on which actions run. Private tests are never included."""
    truth = problem.ground_truth
    if not isinstance(truth, StdioTests) or not truth.groups:
        return ()
    public = truth.select_groups({"public"})
    cases = zip(public.inputs, public.outputs, strict=True)
    return tuple(case for case in cases if max(map(len, case)) <= MAX_SHOWN_CHARACTERS)[:SHOWN_TESTS]


def _make_run(tests: ProblemRequest, suite: Suite, judging: Dataset) -> ProblemRequest:
    """Return the run of an action: on the public tests, or once with an empty input."""
    cases = suite.shown or (("", ""),)
    truth = StdioTests(tuple(given for given, _ in cases), tuple(expected for _, expected in cases))
    comparator = ProblemComparator("exact") if not suite.shown else None
    request = judge_request("", judging, Problem("session", "action", "", truth, comparator=comparator), Answer(""))
    if suite.shown and tests.whole.HasField("comparator"):
        request.comparator.CopyFrom(tests.whole.comparator)
    request.limits.CopyFrom(tests.whole.limits)
    request.submission.language = tests.whole.submission.language
    return tests_of_request(request)
