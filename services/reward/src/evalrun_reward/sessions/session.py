"""A session as stored, and the rules of its calls. Pure.

SessionError
 +- UnknownSessionError     the session expired, was never started, or was lost by the store: start another session
 +- SessionClosedError      the session takes no more actions
 +- TurnConflictError       the turn already has another action
 +- SessionLimitError       the session's turns, or its characters, are used up
 +- TooManySessionsError    the maximum number of sessions is open: come back later
 +- NotJudgedError          nothing could be decided: ask again; never a reward
"""

import hashlib
import secrets
from dataclasses import dataclass

import msgspec

from evalrun_reward.sessions.live import Interpreter
from evalrun_reward.sessions.messages import Action, RewardResponse
from evalrun_reward.wire import Shape

_SID_BITS = 53
"""A double holds each such number exactly: some callers keep ids in tensors of float64, or read JSON in JavaScript."""
_MAX_SID_BITS = 63
"""Stores keep ids as signed 64-bit integers."""


class SessionError(Exception):
    """A call is refused. The message says what to do."""


class UnknownSessionError(SessionError):
    """There is no such session."""

    def __init__(self, sid: str) -> None:
        super().__init__(
            f"session {sid}: state lost: it expired (--session-idle-seconds), was never started, or its store was "
            "emptied. Start another one; this is no reward"
        )


class SessionClosedError(SessionError):
    """The session takes no more actions."""


class TurnConflictError(SessionError):
    """The turn already has another action."""


class SessionLimitError(SessionError):
    """The session's turns, or its characters, are used up."""


class TooManySessionsError(SessionError):
    """The maximum number of sessions is open."""


class NotJudgedError(SessionError):
    """The judge could not decide.

    Args:
        reason: why.
        invalid: asking again changes nothing.
    """

    def __init__(self, reason: str, *, invalid: bool = False) -> None:
        super().__init__(reason)
        self.invalid = invalid


class Turn(msgspec.Struct, frozen=True):
    """An action with its observation."""

    content: str
    observation: str
    has_program: bool


class Suite(msgspec.Struct, frozen=True):
    """Tests of a session, kept from its start, so that replicas with other files judge by the same tests."""

    request: bytes
    """A serialized JudgeRequest without an answer."""
    shown: tuple[tuple[str, str], ...] = ()
    """Input and expected output of public tests, which actions run on."""


class Session(msgspec.Struct, frozen=True):
    """The state of a session, except for its suite, which sessions share."""

    sid: str
    instance: str
    suite: bytes
    """SHA-256 of the encoded suite."""
    run: str = ""
    language: str = ""
    shape: Shape = "dense"
    action: Action = "run"
    version: int = 1
    """Increased by each change, so that of two replicas that change a session at once only one succeeds."""
    turns: tuple[Turn, ...] = ()
    closed: bool = False
    reward: RewardResponse | None = None
    interpreter: Interpreter | None = None
    """Interpreter of a session with the action live, once the session has opened one."""

    @property
    def answer(self) -> str:
        """The action to judge: the last action with a program, or the last action if none has a program."""
        with_program = [turn.content for turn in self.turns if turn.has_program]
        if with_program:
            return with_program[-1]
        return self.turns[-1].content if self.turns else ""

    @property
    def size(self) -> int:
        """Characters of the session's actions and observations."""
        return sum(len(turn.content) + len(turn.observation) for turn in self.turns)

    def with_turn(self, turn: Turn, interpreter: Interpreter | None = None) -> "Session":
        """Return the session after another action, with the interpreter for further actions."""
        turns = (*self.turns, turn)
        return msgspec.structs.replace(self, version=self.version + 1, turns=turns, interpreter=interpreter)

    def as_closed(self) -> "Session":
        """Return the session closed to further actions."""
        return msgspec.structs.replace(self, version=self.version + 1, closed=True)

    def with_reward(self, reward: RewardResponse) -> "Session":
        """Return the session with its reward, which never changes."""
        return msgspec.structs.replace(self, version=self.version + 1, closed=True, reward=reward)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    max_turns: int
    max_characters: int
    """Maximum characters of the session's actions and observations."""
    max_observation: int
    """Maximum characters of one observation."""


def find_replay(session: Session, content: str, turn: int | None, limits: SessionLimits) -> str | None:
    """Return the observation of an action that was executed before, or None for a new action.

    Raises:
        TurnConflictError: `turn` already has another action, or turns before it are missing.
        SessionClosedError: the session takes no more actions.
        SessionLimitError: the session's turns, or its characters, are used up.
    """
    taken = len(session.turns)
    at = turn if turn is not None else taken - 1 if taken and session.turns[-1].content == content else taken
    if 0 <= at < taken:
        if session.turns[at].content != content:
            raise TurnConflictError(f"turn {at} of session {session.sid} was another action: the next turn is {taken}")
        return session.turns[at].observation
    if at != taken:
        raise TurnConflictError(f"turn {at}: the next turn of session {session.sid} is {taken}")
    if session.closed:
        raise SessionClosedError(f"session {session.sid} is closed: it takes no actions after /postprocess")
    if taken >= limits.max_turns:
        raise SessionLimitError(
            f"session {session.sid} has had its {limits.max_turns} turns (--max-turns): ask for its reward"
        )
    if session.size + len(content) + limits.max_observation > limits.max_characters:
        raise SessionLimitError(
            f"session {session.sid} would be larger than {limits.max_characters} characters "
            "(--max-session-characters): send shorter actions, or ask for its reward"
        )
    return None


def make_sid(run: str, request_id: str) -> str:
    """Return the id of a new session: deterministic for a request id of a run, random without a request id."""
    if not request_id:
        return str(secrets.randbits(_SID_BITS))
    name = msgspec.msgpack.encode((run, request_id))
    return str(int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> (64 - _SID_BITS))


def is_sid(text: str) -> bool:
    """Return whether a text is a decimal number that fits a signed 64-bit integer."""
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 1 << _MAX_SID_BITS
