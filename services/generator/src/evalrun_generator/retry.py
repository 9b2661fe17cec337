"""What a failed request means: who is asked next, when, and whether it counts against the item. Pure.

Two questions are kept apart. *Action*: may the same item succeed later, will it never, or will nothing ever? *Blame*:
what the failure says about the endpoint, which is all that the balancer looks at.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum

LONGEST_MESSAGE = 300
"""Characters of a server's message that are kept: vLLM's hold the whole traceback, a proxy's a whole page."""

LONGEST_RETRY_AFTER_SECONDS = 600.0


class Action(Enum):
    """What becomes of the item."""

    RETRY = "retry"
    """Ask again, elsewhere where there is an elsewhere."""
    REJECT = "reject"
    """The server will never answer this item: the run goes on without it and ends as not complete."""
    ABORT = "abort"
    """No item will ever be answered (wrong key, wrong model, wrong URL): stop at once and say so."""


class Blame(Enum):
    """What a failure says about the endpoint."""

    NONE = "none"
    SUSPECT = "suspect"
    """It failed at this one; several in a row mean that it is broken."""
    BUSY = "busy"
    """It answers and asks for less: wait, then send fewer at a time."""
    DOWN = "down"
    """Nobody is there."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that gave no completion."""

    action: Action
    blame: Blame
    counted: bool
    """Whether it uses up one of the item's attempts. A request that no server has worked on does not: an outage longer
    than all the backoffs would otherwise fail every item."""
    reason: str
    """One line for people, the server's own words where it gave some."""
    retry_after: float | None = None
    """Seconds that the endpoint asked to be left alone."""


def unreachable(cause: str) -> Failure:
    """Classify a request that never reached a server: refused, no such name, connect timeout."""
    return Failure(Action.RETRY, Blame.DOWN, counted=False, reason=cause)


def broken_off(cause: str) -> Failure:
    """Classify a request that was sent and got no usable answer: dropped, past its deadline, malformed.

    It counts: a prompt that crashes the engine looks just like this on every endpoint.
    """
    return Failure(Action.RETRY, Blame.SUSPECT, counted=True, reason=cause)


def from_status(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Failure:
    """Classify an answer whose status is not 200.

    Args:
        status: HTTP status.
        headers: of the answer; only Retry-After is read.
        body: of the answer, shaped as an OpenAI error where the server knows how.
        now: wall-clock time, for a Retry-After that is a date.
    """
    error = error_object(body)
    reason = f"HTTP {status}: {error_message(body)}"
    if status in (429, 503):
        return Failure(Action.RETRY, Blame.BUSY, False, reason, retry_after(headers.get("Retry-After"), now))  # noqa: FBT003 - read as a table
    if status in (408, 425):
        return Failure(Action.RETRY, Blame.NONE, True, reason)  # noqa: FBT003 - read as a table
    if status >= 500:
        return Failure(Action.RETRY, Blame.SUSPECT, True, reason)  # noqa: FBT003 - read as a table
    # A 404 with an OpenAI error about something else than the model is about this one prompt.
    about_the_prompt = status == 404 and error is not None and not names_model(error)
    if (status in (401, 403, 404, 405) and not about_the_prompt) or status < 400:
        return Failure(Action.ABORT, Blame.NONE, True, reason)  # noqa: FBT003 - read as a table
    return Failure(Action.REJECT, Blame.NONE, True, reason)  # noqa: FBT003 - read as a table


def error_object(body: bytes) -> Mapping[str, object] | None:
    """Give the `error` of an OpenAI-shaped error body; older vLLM puts its fields at the top."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    error = parsed.get("error", parsed if parsed.get("object") == "error" else None)
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else None


def names_model(error: Mapping[str, object]) -> bool:
    """Say whether an error is that the model is not served: OpenAI's `code`, vLLM's `param`, or the wording of both."""
    message = str(error.get("message", "")).lower()
    return (
        error.get("code") == "model_not_found"
        or error.get("param") == "model"
        or ("model" in message and ("does not exist" in message or "not found" in message))
    )


def error_message(body: bytes) -> str:
    """Give a server's error as one short line."""
    error = error_object(body)
    text = str(error.get("message") or error) if error is not None else body.decode(errors="replace")
    line = " ".join(text.split()) or "(empty body)"
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3): seconds, or a date. None where absent or not readable.

    Bounded by `LONGEST_RETRY_AFTER_SECONDS`, so that a server with a wrong clock does not stop the run for ever.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    if seconds != seconds:  # NaN: float() reads it, no server means it
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: the n-th wait lies between half of `first * 2^(n-1)` and all of it, at most `longest`.

    The jitter keeps requests that failed together from coming back together; the half keeps a floor under the wait
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "equal jitter").
    """

    first: float
    longest: float

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Give the seconds to wait after the `attempt`-th failure in a row, counted from 1."""
        full = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return full * (0.5 + 0.5 * rng.random())
