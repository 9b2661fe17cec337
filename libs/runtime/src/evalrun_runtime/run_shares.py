"""Shares of the slots that settings declare for runs, as `RUN=WEIGHT`. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from evalrun_runtime.declared_shares import DeclaredShares
from evalrun_runtime.settings import CommaSeparated


def _checked(texts: list[str]) -> list[str]:
    shares_of(texts)
    return texts


RunShares = Annotated[
    CommaSeparated[str],
    AfterValidator(_checked),
    Field(
        default_factory=list,
        description="RUN=WEIGHT: while several runs wait, this one holds slots in proportion to its weight, e.g. "
        "grpo-7b=3. Runs that are not named have weight 1. May be repeated.",
    ),
]


def shares_of(texts: Iterable[str]) -> dict[str, float]:
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


def declared_shares(texts: Sequence[str], clock: Callable[[], float]) -> DeclaredShares | None:
    """Return the shares that settings declare; None if they declare none."""
    return DeclaredShares(shares_of(texts), clock) if texts else None
