"""Messages of the four calls of a session: one frozen struct each."""

import msgspec

from evalrun_reward.wire import Shape


class StartRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a session."""

    instance_hash: str
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
    request_id: str = ""
    """Chosen by the caller, once for each session: the same id returns the same session."""


class StartResponse(msgspec.Struct, frozen=True):
    """The new session."""

    sid: str
    """A decimal number that fits a signed 64-bit integer."""


class ActionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model's message of one turn."""

    sid: str
    content: str
    turn: int | None = None
    """The turn that this is, from 0. Without it, the same content twice in a row counts as a retry of one turn."""


class ActionResponse(msgspec.Struct, frozen=True):
    """The next message for the model."""

    content: str


class SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names a session."""

    sid: str


class Closed(msgspec.Struct, frozen=True):
    """The session takes no more actions."""


class RewardResponse(msgspec.Struct, frozen=True):
    """The reward of a session; only a judged one has an answer."""

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
