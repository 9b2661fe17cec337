"""Plots as inline SVG without scripts or requests; the style sheet sets the colours for light and dark. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from evalrun_results.report.distributions import Bar
from evalrun_results.report.markup import Markup, element, escape_text, joined

WIDTH: Final = 360.0
HEIGHT: Final = 150.0
_LEFT, _TOP, _BOTTOM = 30.0, 10.0, 22.0


def draw_histogram(bars: Sequence[Bar], what: str) -> Markup:
    """Draw bars with tooltips. `what` describes the plot for screen readers."""
    most = max((bar.count for bar in bars), default=0)
    if most == 0:
        return element("p", "nothing to show", class_="quiet")
    floor = HEIGHT - _BOTTOM
    slot = (WIDTH - _LEFT) / len(bars)
    marks: list[Markup] = []
    for place, bar in enumerate(bars):
        left = _LEFT + place * slot
        height = (floor - _TOP) * bar.count / most
        height = max(height, 1.5) if bar.count else 0.0
        title = element("title", f"{bar.label}: {bar.count}")
        box = element(
            "rect", x=left + 1, y=floor - height, width=max(slot - 2, 1.0), height=height, rx=1.5, class_="bar"
        )
        hover = element("rect", x=left, y=_TOP, width=slot, height=floor - _TOP, class_="hover")
        marks.append(element("g", title, hover, box))
        if bar.tick:
            last = place == len(bars) - 1
            marks.append(_label(WIDTH - 2 if last else left + 1, HEIGHT - 7, bar.tick, "end" if last else "start"))
    axis = element("line", x1=_LEFT, y1=floor, x2=WIDTH, y2=floor, class_="axis")
    top = element("line", x1=_LEFT, y1=_TOP, x2=WIDTH, y2=_TOP, class_="grid")
    scale = joined(_label(_LEFT - 5, _TOP + 4, str(most), "end"), _label(_LEFT - 5, floor + 3, "0", "end"))
    return _make_svg(WIDTH, HEIGHT, what, joined(top, marks, axis, scale))


def draw_stacked_bar(parts: Mapping[str, int], labels: Mapping[str, str], what: str) -> Markup:
    """Draw how a whole splits. Names of parts are CSS classes: literals, not data."""
    total = sum(parts.values())
    if total == 0:
        return element("p", "nothing to show", class_="quiet")
    left, marks = 0.0, list[Markup]()
    for name, count in parts.items():
        if count:
            width = WIDTH * count / total
            title = element("title", f"{labels[name]}: {count}")
            marks.append(element("g", title, element("rect", x=left, y=0, width=width, height=26, class_=name)))
            left += width
    return _make_svg(WIDTH, 26.0, what, joined(marks), stretch=True)


def draw_interval_bar(value: float | None, low: float | None, high: float | None) -> Markup | None:
    """Draw a share from 0 to 1 with its interval, if it has an interval."""
    if value is None:
        return None
    start, end = low if low is not None else value, high if high is not None else value
    marks = (
        element("line", x1=0, y1=7, x2=160, y2=7, class_="axis"),
        element("rect", x=160 * start, y=4, width=max(160 * (end - start), 1.0), height=6, rx=3, class_="range"),
        element("rect", x=min(max(160 * value - 1.5, 0.0), 157.0), y=0, width=3, height=14, rx=1, class_="point"),
    )
    return _make_svg(160.0, 14.0, f"{value:.3f}, interval {start:.3f} to {end:.3f}", joined(marks), small=True)


def _make_svg(
    width: float, height: float, what: str, content: Markup, *, small: bool = False, stretch: bool = False
) -> Markup:
    return element(
        "svg",
        content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=what,
        class_="small" if small else "stretch" if stretch else "plot",
        preserveAspectRatio="none" if stretch else None,
    )


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", escape_text(text), x=x, y=y, text_anchor=anchor)
