"""Draws the findings of `sequential_gates.py` as SVG: wrong decisions and problems needed over the true difference."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evalrun_results.report.markup import Markup, element, joined

DRAWING = Path(__file__).with_name("sequential_gates.svg")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 300.0, 190.0, 40.0, 34.0, 12.0, 30.0
FIRST, LAST = -0.105, 0.055
COLOURS = {164: "#94a3b8", 500: "#2563eb", 1055: "#c2410c", 4000: "#15803d"}
INK, QUIET = "#334155", "#94a3b8"

Cell = Mapping[str, object]
ROWS = (
    ("benchmark", "needed", "problems needed", 1.0, 0.5),
    ("similar", "needed", "problems needed", 1.0, 0.5),
    ("benchmark", "wrong", "wrong decisions", 0.2, 0.025),
    ("similar", "wrong", "wrong decisions", 0.2, 0.025),
)


def drawing(found: Sequence[Cell]) -> str:
    """Return the panels, with a column for each share of flips and a row for each population and figure."""
    flips = sorted({float(str(cell["flips"])) for cell in found})
    panels = [
        element(
            "g",
            *_panel(
                [cell for cell in found if (cell["population"], cell["flips"]) == (population, share)], name, top, aim
            ),
            _text(LEFT, 22, f"{population}, {share:.0%} flip: {title}", INK),
            transform=f"translate({column * WIDTH:g} {row * HEIGHT:g})",
        )
        for row, (population, name, title, top, aim) in enumerate(ROWS)
        for column, share in enumerate(flips)
    ]
    height = HEIGHT * len(ROWS)
    keys = [
        _text(LEFT + 120 * at, height + 14, f"{size:,} problems", colour)
        for at, (size, colour) in enumerate(COLOURS.items())
    ]
    keys.append(
        _text(LEFT + 500, height + 14, "dashed line of a colour: fixed-n looked at after every 16 problems", QUIET)
    )
    width = WIDTH * len(flips)
    back = element("rect", width=width, height=height + 24, fill="white")
    return joined(
        element(
            "svg", back, panels, keys, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height + 24:g}",
            font_family="system-ui, sans-serif", font_size="10",
        ),
        "\n",
    )  # fmt: skip


def _panel(cells: Sequence[Cell], name: str, top: float, aim: float) -> list[Markup]:
    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - FIRST) / (LAST - FIRST)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(value, top) / top

    marks = [_rule(LEFT, y(0), WIDTH - RIGHT, y(0), INK), _rule(LEFT, y(aim), WIDTH - RIGHT, y(aim), QUIET, "4 3")]
    marks.append(_rule(x(-0.02), y(0), x(-0.02), y(top), QUIET, "1 3"))
    marks += [_text(LEFT - 4, y(value) + 3, f"{value:.3g}", QUIET, "end") for value in (0.0, aim, top)]
    marks += [_text(x(each / 100), HEIGHT - 16, f"{each:+d}", QUIET, "middle") for each in (-10, -5, -2, 0, 5)]
    for size, colour in COLOURS.items():
        line = sorted(
            ((float(str(cell["difference"])), cell) for cell in cells if cell["size"] == size), key=lambda each: each[0]
        )
        marks.append(_line([(x(at), y(float(str(cell[name])))) for at, cell in line], colour))
        if name == "wrong":
            marks.append(_line([(x(at), y(float(str(cell["fixed_wrong"])))) for at, cell in line], colour, "3 2"))
    return marks


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str | None = None) -> Markup:
    path = " ".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(points))
    return element("path", d=path, fill="none", stroke=colour, stroke_width=1.5, stroke_dasharray=dash)


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> Markup:
    return element("text", text, x=x, y=y, fill=colour, text_anchor=anchor)


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str | None = None) -> Markup:
    return element("line", x1=x1, x2=x2, y1=y1, y2=y2, stroke=colour, stroke_dasharray=dash)
