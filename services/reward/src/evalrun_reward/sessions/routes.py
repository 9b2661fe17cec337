"""Maps the four calls of a session to HTTP: bodies, replies and refusals."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager

import msgspec
from aiohttp import web

from evalrun_client.judge_client import JudgeRefusedError
from evalrun_reward.callers import find_run
from evalrun_reward.metrics import ReplyKind
from evalrun_reward.refusals import ErrorReply
from evalrun_reward.sessions.messages import (
    ActionRequest,
    ActionResponse,
    Closed,
    RewardResponse,
    SessionRequest,
    StartRequest,
    StartResponse,
    render_id,
)
from evalrun_reward.sessions.session import (
    NotJudgedError,
    SessionClosedError,
    SessionError,
    SessionLimitError,
    TooManySessionsError,
    TurnConflictError,
    UnknownSessionError,
)
from evalrun_reward.sessions.session_calls import SessionCalls
from evalrun_reward.sessions.store import StoreError
from evalrun_runtime.deadlines import DeadlineError, read_deadline, until

SESSION_PATHS = ("/start_instance", "/process_action", "/postprocess", "/compute_reward")

FULL_RETRY_SECONDS = 10.0
STORE_RETRY_SECONDS = 1.0

Work = Callable[[web.Request], Awaitable[msgspec.Struct]]
Enter = Callable[[str, int], AbstractContextManager[None]]
"""Takes a place in the service's queue, given a run and the bytes of its request. Raises ErrorReply."""

_STATUS: dict[type[SessionError], tuple[int, ReplyKind, float | None]] = {
    UnknownSessionError: (404, ReplyKind.NO_SESSION, None),
    SessionClosedError: (409, ReplyKind.CONFLICT, None),
    TurnConflictError: (409, ReplyKind.CONFLICT, None),
    SessionLimitError: (413, ReplyKind.TOO_LARGE, None),
    TooManySessionsError: (429, ReplyKind.QUEUE_FULL, FULL_RETRY_SECONDS),
}


class SessionRoutes:
    """Parses bodies, makes the calls, and maps their errors to statuses.

    Args:
        calls: answers the calls.
        enter: takes a place in the service's queue.
        deadline_seconds: seconds after which a call is given up, unless the request names a shorter time.
    """

    def __init__(self, calls: SessionCalls, enter: Enter, deadline_seconds: float) -> None:
        self._calls = calls
        self._enter = enter
        self._deadline_seconds = deadline_seconds
        self._starts = msgspec.json.Decoder(StartRequest)
        self._actions = msgspec.json.Decoder(ActionRequest)
        self._sessions = msgspec.json.Decoder(SessionRequest)

    def paths(self) -> dict[str, Work]:
        """Return the handler of each path."""
        return dict(zip(SESSION_PATHS, (self._start, self._act, self._close, self._reward), strict=True))

    async def _start(self, request: web.Request) -> StartResponse:
        body = await request.read()
        asked = self._starts.decode(body)
        asked = msgspec.structs.replace(asked, run=find_run(request, asked.run))
        async with self._answer_call(request):
            with self._enter(asked.run, len(body)):
                return StartResponse((await self._calls.start(asked)).sid)

    async def _act(self, request: web.Request) -> ActionResponse:
        body = await request.read()
        asked = self._actions.decode(body)
        async with self._answer_call(request):
            session = await self._calls.get(render_id(asked.sid))
            with self._enter(session.run, len(body)):
                return ActionResponse(await self._calls.act(session, asked))

    async def _close(self, request: web.Request) -> Closed:
        asked = self._sessions.decode(await request.read())
        async with self._answer_call(request):
            await self._calls.close(await self._calls.get(render_id(asked.sid)))
            return Closed()

    async def _reward(self, request: web.Request) -> RewardResponse:
        asked = self._sessions.decode(await request.read())
        async with self._answer_call(request):
            session = await self._calls.get(render_id(asked.sid))
            with self._enter(session.run, session.size):
                return await self._calls.reward(session)

    @asynccontextmanager
    async def _answer_call(self, request: web.Request) -> AsyncIterator[None]:
        """Bound the time of a call, and convert its errors to ErrorReply."""
        now = asyncio.get_running_loop().time()
        try:
            async with until(min(now + self._deadline_seconds, read_deadline(request.headers) or math.inf)):
                yield
        except NotJudgedError as error:
            if error.invalid:
                raise ErrorReply(422, ReplyKind.MALFORMED, f"it cannot be judged: {error}") from error
            raise ErrorReply(503, ReplyKind.NOT_JUDGED, f"not judged: {error}. Ask again", 1.0) from error
        except SessionError as error:
            status, reply, wait = _STATUS[type(error)]
            raise ErrorReply(status, reply, str(error), wait) from error
        except StoreError as error:
            raise ErrorReply(503, ReplyKind.STORE_DOWN, f"{error}. Ask again", STORE_RETRY_SECONDS) from error
        except DeadlineError as error:
            raise ErrorReply(
                503, ReplyKind.NOT_JUDGED, "no answer by the request's deadline: ask again", 1.0
            ) from error
        except JudgeRefusedError as error:
            message = "the judge refuses this service: set EVALRUN_REWARD_JUDGE_TOKEN to the judge's token"
            raise ErrorReply(503, ReplyKind.NOT_JUDGED, message, 1.0) from error
