"""Values by problem as the bars of a histogram. Pure."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

WIDE: Final = 100
"""Values that spread over more than this factor are shown on a 1-2-5 scale."""
LINEAR_BARS: Final = 12
MAX_LOG_BARS: Final = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar."""

    count: int
    label: str
    """Description of the counted quantity."""
    tick: str
    """Text at the bar's left edge; empty for none."""


def share_bars(shares: Iterable[float]) -> list[Bar]:
    """Count shares in bars: exactly 0, ten steps between, and exactly 1, because the ends matter most."""
    counts = [0] * 12
    for share in shares:
        counts[0 if share <= 0 else 11 if share >= 1 else 1 + min(9, math.floor(share * 10))] += 1
    steps = [f"{10 * step} % to {10 * step + 10} %" for step in range(10)]
    labels = ["no test passed", *steps, "every test passed"]
    ticks = ["0", "", "", "", "", "", "50 %", "", "", "", "", "all"]
    return [Bar(count, label, tick) for count, label, tick in zip(counts, labels, ticks, strict=True)]


def amount_bars(values: Sequence[float], written: Callable[[float], str]) -> list[Bar]:
    """Count amounts that are not negative, on a 1-2-5 scale where they spread widely, else in even steps.

    Args:
        values: one per problem.
        written: formats an amount.
    """
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return []
    above = [value for value in values if value > 0]
    zeros = [Bar(len(values) - len(above), written(0.0), written(0.0))] if len(above) < len(values) else []
    if not above:
        return zeros
    wide = max(above) / min(above) > WIDE
    edges = _make_log_edges(min(above), max(above)) if wide else _make_even_edges(min(above), max(above))
    counts = [0] * (len(edges) - 1)
    for value in above:
        counts[min(max(bisect_right(edges, value) - 1, 0), len(counts) - 1)] += 1
    # A mark at the last bar reads as its end.
    step, last = math.ceil(len(counts) / 5), max(len(counts) - 1, 1)
    # Even steps may begin at 0 too, and a single mark is enough.
    marked = {zeros[0].tick} if zeros else set()
    bars = []
    for place, (count, (low, high)) in enumerate(zip(counts, pairwise(edges), strict=True)):
        tick = "" if place % step or place == last or written(low) in marked else written(low)
        bars.append(Bar(count, f"{written(low)} to {written(high)}", tick))
    return zeros + bars


def _make_log_edges(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, ... around the values. If there would be too many bars, the lowest are joined."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    edges = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first = max(bisect_right(edges, low) - 1, 0)
    last = next(place for place, edge in enumerate(edges) if edge > high)
    return edges[max(first, last - MAX_LOG_BARS) : last + 1]


def _make_even_edges(low: float, high: float) -> list[float]:
    """Return even, round edges around the values."""
    rough = (high - low) / LINEAR_BARS or high / LINEAR_BARS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough)
    start = math.floor(low / step)
    return [step * place for place in range(start, math.floor(high / step) + 2)]
