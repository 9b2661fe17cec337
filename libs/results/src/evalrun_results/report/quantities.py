"""Number formats of the report. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from evalrun_registry.metric import Unit
from evalrun_registry.metrics import find_metric

NONE: Final = "\u2013"
"""Text for a missing value."""


def percent(share: float | None) -> str:
    """Return a share as a percentage with a decimal, or a dash without a value."""
    return NONE if share is None else f"{100 * share:.1f}\u00a0%"


def seconds(value: float | None) -> str:
    """Return seconds in the unit that suits them."""
    if value is None:
        return NONE
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    if value >= 120:
        return f"{value / 60:.1f} min"
    if value >= 1:
        return f"{_three_digits(value)} s"
    return "0 s" if value == 0 else f"{_three_digits(value * 1000)} ms"


def number(value: float | None) -> str:
    """Return a number to about three digits, with blanks between thousands."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.3g}"


def round_seconds(value: float) -> str:
    """Return round seconds, as at the edges of a bar: without closing zeros."""
    if value >= 120:
        return seconds(value)
    return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"


def _three_digits(value: float) -> str:
    return f"{value:#.3g}".removesuffix(".")


def figure(metric: str, value: float | None) -> str:
    """Return a metric's value in its unit."""
    named = find_metric(metric)
    return percent(value) if named is None else _FORMATS[named.metric.unit](value)


_FORMATS: Final[Mapping[Unit, Callable[[float | None], str]]] = {
    Unit.SHARE: percent,
    Unit.SCORE: percent,
    Unit.SECONDS: seconds,
    Unit.NUMBER: number,
}
