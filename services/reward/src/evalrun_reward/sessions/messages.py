"""Messages of the four calls of a session, as frozen structs."""

from typing import Literal

import msgspec

from evalrun_reward.wire import Shape

Id = str | int | float
"""An id as its caller holds it: trainers keep ids in tensors, so that they come back as numbers."""
Action = Literal["run", "submit", "live"]
"""run: an action's program runs, and the model sees what it printed. submit: the tests judge the program too, and the
model sees how many of them passed, never the tests. live: the program runs in the session's own Python interpreter,
which keeps variables, imports and files from action to action."""


def render_id(number_or_text: Id) -> str:
    """Return an id as a text: a whole number in decimal digits."""
    if isinstance(number_or_text, float) and number_or_text.is_integer():
        return str(int(number_or_text))
    return str(number_or_text)


class StartRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a session."""

    instance_hash: Id
    """The `problem_id` of a problem in --problems; any name if `ground_truth` is given."""
    dataset: str = ""
    """Of the problem; needed only if several have its id."""
    ground_truth: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Tests, as a sample of /v1/rewards has them."""
    language: str = ""
    """Empty: the problem's, or python."""
    run: str = ""
    """Name of the caller's run: places are shared fairly between runs."""
    shape: Shape = "dense"
    """Of the reward."""
    action: Action | msgspec.UnsetType = msgspec.UNSET
    """Work of /process_action. Left out: run for tests on stdin and stdout, and submit for every other kind of
    tests, because a function alone prints nothing."""
    request_id: str = ""
    """Chosen by the caller, once for each session: the same id returns the same session."""


class StartResponse(msgspec.Struct, frozen=True):
    """The new session."""

    sid: str
    """A decimal number below 2^53, which an integer of 64 bits and a double hold exactly."""


class ActionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model's message in a turn."""

    sid: Id
    content: str
    turn: int | None = None
    """The turn that this is, from 0. Without it, the same content twice in a row counts as a retry of one turn."""


class ActionResponse(msgspec.Struct, frozen=True):
    """The next message for the model."""

    content: str


class SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names a session."""

    sid: Id


class Closed(msgspec.Struct, frozen=True):
    """The session takes no more actions."""


class RewardResponse(msgspec.Struct, frozen=True):
    """The reward of a session. A session that was not judged has no completion."""

    reward: float
    f2p_count: int
    """Tests passed of those that no program at all fails: all of them, for a program written from nothing."""
    f2p_total: int
    p2p_count: int
    """The same for tests that passed before: none, for a program written from nothing."""
    p2p_total: int
    accepted: bool
    final_status: str
    turns: int
    """Actions taken."""
