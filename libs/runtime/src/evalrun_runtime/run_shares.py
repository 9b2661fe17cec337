"""Shares of the slots and priorities that settings declare for runs, as `RUN=WEIGHT` and `RUN=high`. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from evalrun_runtime.declared_shares import DeclaredShares, Priority
from evalrun_runtime.settings import CommaSeparated


def _check_shares(texts: list[str]) -> list[str]:
    parse_shares(texts)
    return texts


def _check_priorities(texts: list[str]) -> list[str]:
    parse_priorities(texts)
    return texts


RunShares = Annotated[
    CommaSeparated[str],
    AfterValidator(_check_shares),
    Field(
        default_factory=list,
        description="RUN=WEIGHT: while several runs wait, this one holds slots in proportion to its weight, e.g. "
        "grpo-7b=3. Runs that are not named have weight 1. May be repeated.",
    ),
]

RunPriorities = Annotated[
    CommaSeparated[str],
    AfterValidator(_check_priorities),
    Field(
        default_factory=list,
        description="RUN=high or RUN=low: free slots go to the waiting runs of the highest priority first; each lower "
        "one keeps at least a twentieth of the slots, and more where few slots are held for seconds. Runs that are not "
        "named are normal. May be repeated.",
    ),
]


def parse_shares(texts: Iterable[str]) -> dict[str, float]:
    """Return the weights by run. Raises ValueError for a text that is no `RUN=WEIGHT`, or a run named twice."""
    shares: dict[str, float] = {}
    for text in texts:
        run, _, weight = text.rpartition("=")
        try:
            share = float(weight)
        except ValueError:
            share = math.nan
        if not run or not 0 < share < math.inf:
            raise ValueError(f"{text!r}: write RUN=WEIGHT with a weight above 0, e.g. grpo-7b=3")
        if run in shares:
            raise ValueError(f"{text!r}: {run} has a weight already: name it once")
        shares[run] = share
    return shares


def parse_priorities(texts: Iterable[str]) -> dict[str, Priority]:
    """Return the priorities by run. Raises ValueError for an invalid text, or a run named twice."""
    names = {priority.name.lower(): priority for priority in Priority}
    priorities: dict[str, Priority] = {}
    for text in texts:
        run, _, name = text.rpartition("=")
        if not run or name not in names:
            raise ValueError(f"{text!r}: write RUN=high, RUN=normal or RUN=low, e.g. nightly=high")
        if run in priorities:
            raise ValueError(f"{text!r}: {run} has a priority already: name it once")
        priorities[run] = names[name]
    return priorities


def make_declared_shares(
    shares: Sequence[str], priorities: Sequence[str], clock: Callable[[], float]
) -> DeclaredShares | None:
    """Return the shares that the settings declare; None if they declare no shares and no priorities."""
    if not shares and not priorities:
        return None
    return DeclaredShares(parse_shares(shares), clock, parse_priorities(priorities))
