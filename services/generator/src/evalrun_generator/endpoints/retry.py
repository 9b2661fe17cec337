"""Classifies failed requests: whether to retry, where, when, and whether the failure counts as an attempt. Pure.

Two decisions are independent. *Action*: can this item still succeed, or no item at all? *Blame*: what the failure says
about the endpoint; the balancer looks only at this.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum

from evalrun_generator.endpoints.vllm_texts import says_model_is_missing
from evalrun_runtime.backoff import backoff_seconds
from evalrun_runtime.unicode_text import replace_surrogates

MAX_MESSAGE_CHARACTERS = 300
"""Longer server messages are truncated: vLLM's contain a whole traceback, a proxy's a whole page."""

MAX_RETRY_AFTER_SECONDS = 600.0


KEY_REFUSED = frozenset({401, 403})
"""Statuses of a server that refuses the API key."""


class RetryAction(Enum):
    """Next step for the item."""

    RETRY = "retry"
    """Retry, on another endpoint if there is one."""
    REJECT = "reject"
    """The server will never complete this item: the run continues without it and ends incomplete."""
    ABORT = "abort"
    """No item can be completed (wrong key, wrong model, wrong URL): stop at once with an error."""


class Blame(Enum):
    """Conclusion about the endpoint from a failure."""

    NONE = "none"
    SUSPECT = "suspect"
    """The endpoint failed this request; several failures in a row mean that it is broken."""
    BUSY = "busy"
    """The endpoint asks for less load: wait, then send fewer requests at a time."""
    DOWN = "down"
    """The endpoint cannot be reached."""


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request without a completion."""

    action: RetryAction
    blame: Blame
    counted: bool
    """Whether it counts as one of the item's attempts. A request that no server worked on does not: otherwise an outage
    longer than all backoffs would fail every item."""
    reason: str
    """One human-readable line, in the server's words if it gave any."""
    retry_after: float | None = None
    """Seconds the endpoint asked to wait."""
    status: int | None = None
    """HTTP status, if there was a reply."""
    timed_out: bool = False
    """Whether no reply came within the request's limit."""

    @property
    def remedy(self) -> str:
        """What the user can do, to be appended to the reason; empty if nothing is known."""
        if self.status not in KEY_REFUSED:
            return ""
        return ". Set the server's API key in EVALRUN_GENERATOR_API_KEY or OPENAI_API_KEY"


def unreachable(cause: str) -> RequestFailure:
    """Classify a request that never reached a server: refused, no such name, connect timeout."""
    return RequestFailure(RetryAction.RETRY, Blame.DOWN, counted=False, reason=cause)


def classify_broken_off(cause: str) -> RequestFailure:
    """Classify a request without a usable reply: dropped, past its deadline, malformed.

    It counts as an attempt: a prompt that crashes the engine looks like this on every endpoint.
    """
    return RequestFailure(RetryAction.RETRY, Blame.SUSPECT, counted=True, reason=cause)


def from_status(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> RequestFailure:
    """Classify a response whose status is not 200.

    Args:
        status: HTTP status.
        headers: response headers; only Retry-After is read.
        body: response body, an OpenAI error object if the server sends those.
        now: wall-clock time, needed if Retry-After is a date.
    """
    return replace(_classify_status(status, headers, body, now), status=status)


def _classify_status(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> RequestFailure:
    error = error_object(body)
    reason = f"HTTP {status}: {error_message(body)}"
    if status in (429, 503):
        wait = retry_after(headers.get("Retry-After"), now)
        return RequestFailure(RetryAction.RETRY, Blame.BUSY, False, reason, wait)  # noqa: FBT003 - read as a table
    if status in (408, 425):
        return RequestFailure(RetryAction.RETRY, Blame.NONE, True, reason)  # noqa: FBT003 - read as a table
    if status >= 500:
        return RequestFailure(RetryAction.RETRY, Blame.SUSPECT, True, reason)  # noqa: FBT003 - read as a table
    # A 404 with an OpenAI error that does not concern the model concerns this one prompt.
    about_the_prompt = status == 404 and error is not None and not names_model(error)
    if (status in (401, 403, 404, 405) and not about_the_prompt) or status < 400:
        return RequestFailure(RetryAction.ABORT, Blame.NONE, True, reason)  # noqa: FBT003 - read as a table
    return RequestFailure(RetryAction.REJECT, Blame.NONE, True, reason)  # noqa: FBT003 - read as a table


def error_object(body: bytes) -> Mapping[str, object] | None:
    """Return the `error` of an OpenAI error body; older vLLM puts its fields at the top level."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    error = parsed.get("error", parsed if parsed.get("object") == "error" else None)
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else None


def names_model(error: Mapping[str, object]) -> bool:
    """Return whether an error says that the model is not served: OpenAI and vLLM say so by a field, others by text."""
    return (
        error.get("code") == "model_not_found"
        or error.get("param") == "model"
        or says_model_is_missing(str(error.get("message", "")))
    )


def error_message(body: bytes) -> str:
    """Return a server's error message as one short line."""
    error = error_object(body)
    text = str(error.get("message") or error) if error is not None else body.decode(errors="replace")
    line = " ".join(replace_surrogates(text).split()) or "(empty body)"
    return line if len(line) <= MAX_MESSAGE_CHARACTERS else line[: MAX_MESSAGE_CHARACTERS - 1] + "…"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Parse a Retry-After header (RFC 9110, 10.2.3): seconds, or a date. Returns None if absent or malformed.

    Bounded by `MAX_RETRY_AFTER_SECONDS`, so that a server with a wrong clock cannot stop the run indefinitely.
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
    # `float()` accepts NaN, and no server means it.
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: the n-th wait lies between half of `first * 2^(n-1)` and all of it, at most `max_wait`.

    The jitter keeps requests that failed together from being retried together; the half is a lower bound of the wait
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "equal jitter").
    """

    first: float
    max_wait: float

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Return the seconds to wait after the `attempt`-th failure in a row, counted from 1."""
        full = backoff_seconds(attempt, self.first, self.max_wait)
        return full * (0.5 + 0.5 * rng.random())
