"""Decides what an act of control does to a run. Pure."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

MAX_IN_FLIGHT: Final = 65_536


@dataclass(frozen=True)
class Pause:
    """Hand out no new work, and send no more completions to the judge."""


@dataclass(frozen=True)
class Resume:
    """Continue after a pause."""


@dataclass(frozen=True)
class RequeueNotJudged:
    """Judge the completions again that the judge gave up."""


@dataclass(frozen=True)
class SetConcurrency:
    """Limit the requests that a worker may have in flight."""

    max_in_flight: int | None
    """From 1 to MAX_IN_FLIGHT; None: as many as its endpoints take."""


@dataclass(frozen=True)
class Stop:
    """End the run now, with partial results."""


Act = Pause | Resume | RequeueNotJudged | SetConcurrency | Stop


class Refusal(Enum):
    """Reason why a run cannot take an act."""

    ENDED = auto()
    ENDING = auto()
    """The outputs of the run are being written."""
    FAILED = auto()
    """The run cannot continue without help."""
    NO_ANSWER = auto()
    """The run has no completion yet that could be kept."""


class Effect(Enum):
    """Effect of an act that is not refused."""

    CHANGES = auto()
    NOTHING = auto()
    """The run is already in the requested state."""


@dataclass(frozen=True)
class Standing:
    """Facts about a run that decide what an act does."""

    ended: bool = False
    ending: bool = False
    failed: bool = False
    paused: bool = False
    max_in_flight: int | None = None
    not_judged: int = 0
    """Number of completions that the judge gave up."""
    has_answers: bool = True


def decide(act: Act, standing: Standing) -> Effect | Refusal:
    """Return the effect of an act. A repeated act has no effect."""
    if standing.failed:
        return Refusal.FAILED
    if standing.ended or standing.ending:
        if isinstance(act, Stop):
            return Effect.NOTHING
        return Refusal.ENDED if standing.ended else Refusal.ENDING
    match act:
        case Pause():
            changes = not standing.paused
        case Resume():
            changes = standing.paused
        case RequeueNotJudged():
            changes = standing.not_judged > 0
        case SetConcurrency(bound):
            changes = bound != standing.max_in_flight
        case Stop():
            if not standing.has_answers:
                return Refusal.NO_ANSWER
            changes = True
    return Effect.CHANGES if changes else Effect.NOTHING
