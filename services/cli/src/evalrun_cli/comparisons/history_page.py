"""The curves over a training's steps as a self-contained HTML page with inline SVG and without scripts. Pure."""

from collections.abc import Sequence
from itertools import pairwise

from evalrun_results.comparisons.history import Curve, Point
from evalrun_results.report.markup import Child, Markup, element, escape_text, joined
from evalrun_results.report.page import page, table

WIDTH, HEIGHT = 720.0, 260.0
LEFT, TOP, RIGHT, BOTTOM = 56.0, 14.0, 14.0, 28.0


def history_page(found: Sequence[tuple[str, Curve]], stepless: Sequence[str]) -> str:
    """Return the page.

    Args:
        found: each curve with its title.
        stepless: places of runs that name no step.
    """
    return page(
        "Checkpoints over time",
        element("h1", "Checkpoints over time"),
        [[element("h2", title), curve_plot(title, curve.points), _figures(curve.points)] for title, curve in found],
        [element("p", f"left out: {place} says no step", class_="quiet") for place in stepless],
    )


def curve_plot(what: str, points: Sequence[Point]) -> Markup:
    """Draw values over steps with their intervals. `what` describes the plot for screen readers."""
    shown = [(point, point.value) for point in points if point.value is not None]
    if not shown:
        return element("p", "nothing to show", class_="quiet")
    values = [edge for point, value in shown for edge in (point.low, value, point.high) if edge is not None]
    low, high = min(values), max(values)
    first, last = shown[0][0].step, shown[-1][0].step
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def x(step: int) -> float:
        return LEFT + (right - LEFT) * ((step - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return floor - (floor - TOP) * ((value - low) / (high - low) if high > low else 0.5)

    marks: list[Markup] = [
        element("line", x1=LEFT, y1=floor, x2=right, y2=floor, class_="axis"),
        element("line", x1=LEFT, y1=TOP, x2=right, y2=TOP, class_="grid"),
        _label(LEFT - 6, TOP + 4, f"{high:.4g}", "end"),
        _label(LEFT - 6, floor, f"{low:.4g}", "end"),
        _label(LEFT, HEIGHT - 8, str(first), "start"),
        _label(right, HEIGHT - 8, str(last), "end"),
    ]
    for (one, value), (other, following) in pairwise(shown):
        marks.append(element("line", x1=x(one.step), y1=y(value), x2=x(other.step), y2=y(following), class_="axis"))
    for point, value in shown:
        said = f"step {point.step}: {value:.4g}"
        bar: Markup | None = None
        if point.low is not None and point.high is not None:
            said += f", interval {point.low:.4g} to {point.high:.4g}"
            bar = element(
                "rect", x=x(point.step) - 1.5, y=y(point.high), width=3,
                height=max(y(point.low) - y(point.high), 1.0), class_="range",
            )  # fmt: skip
        dot = element("rect", x=x(point.step) - 3, y=y(value) - 3, width=6, height=6, rx=3, class_="point")
        marks.append(element("g", element("title", said), bar, dot))
    return element(
        "svg", joined(marks), viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", aria_label=what, class_="plot"
    )


def _figures(points: Sequence[Point]) -> Markup:
    rows: list[list[Child]] = [
        [
            str(point.step),
            "" if point.value is None else f"{point.value:.4g}",
            "" if point.low is None or point.high is None else f"{point.low:.4g} to {point.high:.4g}",
            "" if point.judged is None else str(point.judged),
            point.condition,
            element("span", point.place, class_="mono"),
        ]
        for point in points
    ]
    return table(["Step", "Value", "Interval", "Judged", "State", "Where"], rows)


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", escape_text(text), x=x, y=y, text_anchor=anchor)
