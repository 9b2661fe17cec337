"""Differences with their intervals beside a zero line, as inline SVG. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evalrun_results.report.markup import Markup, element, escape_text, joined

WIDTH: Final = 560.0
_ROW, _LEFT, _RIGHT, _TOP, _BOTTOM = 22.0, 190.0, 14.0, 6.0, 22.0
MIN_REACH: Final = 0.02
"""Two points: smaller differences are not blown up to the plot's width."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A difference of shares with its interval."""

    label: str
    difference: float
    low: float
    high: float


def forest(shifts: Sequence[Shift], what: str) -> Markup | None:
    """Draw the differences, one per line; None without differences. `what` describes the plot for screen readers."""
    if not shifts:
        return None
    reach = max(MIN_REACH, *(max(abs(each.low), abs(each.high)) for each in shifts))
    floor = _TOP + _ROW * len(shifts)

    def x(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value + reach) / (2 * reach)

    marks = [element("line", x1=x(0), y1=_TOP, x2=x(0), y2=floor, class_="axis")]
    for place, each in enumerate(shifts):
        middle = _TOP + _ROW * (place + 0.5)
        says = f"{each.label}: {100 * each.difference:+.1f} points, {100 * each.low:+.1f} to {100 * each.high:+.1f}"
        width = max(x(each.high) - x(each.low), 1.0)
        marks.append(
            element(
                "g",
                element("title", says),
                _text(_LEFT - 8, middle + 4, each.label, "end"),
                element("rect", x=x(each.low), y=middle - 3, width=width, height=6, rx=3, class_="range"),
                element("rect", x=x(each.difference) - 1.5, y=middle - 7, width=3, height=14, rx=1, class_="point"),
            )
        )
    scale = [
        _text(x(value), floor + 15, f"{100 * value:+.0f}" if value else "0", "middle") for value in (-reach, 0, reach)
    ]
    return element(
        "svg", joined(marks, scale), viewBox=f"0 0 {WIDTH:g} {floor + _BOTTOM:g}", role="img", aria_label=what,
        class_="plot",
    )  # fmt: skip


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", escape_text(text), x=x, y=y, text_anchor=anchor)
