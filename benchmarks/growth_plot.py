"""Draws the growth of a run (`growth.svg`, from `ledger_growth.py` and `aggregator_growth.py`) and of a preparation of
data (`data_growth.svg`, from `data_preparation.py`), beside the aims.

These benchmarks store their figures with `--keep benchmarks/growth.json`, and this program draws them.

    .venv/bin/python benchmarks/growth_plot.py
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalrun_results.report.markup import Markup, element, joined

FIGURES = Path(__file__).with_name("growth.json")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 330.0, 210.0, 46.0, 44.0, 34.0, 26.0
COLOURS = {"ledger_growth.py": "#2563eb", "aggregator_growth.py": "#c2410c", "data_preparation.py": "#15803d"}
INK, QUIET = "#334155", "#94a3b8"

Figures = Mapping[str, float]
Found = dict[str, dict[str, Figures]]
"""Figures by benchmark and number of samples."""


@dataclass(frozen=True)
class Panel:
    """A plot of one figure over the number of samples, for each benchmark that measures it, with its aim."""

    title: str
    names: Mapping[str, str]
    """Name of the figure, by benchmark."""
    aim: float | None = None
    aimed: str = "aim: under {:g}"


RUN_PANELS = (
    Panel(
        "items a second",
        {"ledger_growth.py": "items_per_second", "aggregator_growth.py": "items_per_second"},
        5000,
        "aim: ledger above {:,g}",
    ),
    Panel("CPU us an item", {"ledger_growth.py": "cpu_us_per_item", "aggregator_growth.py": "cpu_us_per_item"}),
    Panel("peak memory, MB", {"ledger_growth.py": "peak_mb", "aggregator_growth.py": "peak_mb"}, 300),
    Panel("seconds to resume", {"ledger_growth.py": "resume_seconds"}, 10),
)
DATA_PANELS = (
    Panel("CPU seconds", {"data_preparation.py": "cpu_seconds"}),
    Panel("CPU ms a problem", {"data_preparation.py": "cpu_ms_per_problem"}),
    Panel("peak memory, MiB", {"data_preparation.py": "max_rss_mib"}, 1024),
)
DRAWINGS = {"growth.svg": RUN_PANELS, "data_growth.svg": DATA_PANELS}


def keep(file: Path | None, benchmark: str, samples: int, figures: Figures) -> None:
    """Add a benchmark's figures for this number of samples to a file. If `file` is None, do nothing."""
    if file is None:
        return
    found: Found = json.loads(file.read_text()) if file.exists() else {}
    found.setdefault(benchmark, {})[str(samples)] = {name: float(f"{value:.4g}") for name, value in figures.items()}
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def drawing(found: Found, panels: Sequence[Panel]) -> Markup:
    """Return the panels side by side, as SVG."""
    drawn = [
        element("g", *_panel(panel, found), transform=f"translate({place * WIDTH:g} 0)")
        for place, panel in enumerate(panels)
    ]
    named = [benchmark for benchmark in COLOURS if any(benchmark in panel.names for panel in panels)]
    keys = [
        _text(LEFT + 150 * place, HEIGHT + 16, benchmark, COLOURS[benchmark]) for place, benchmark in enumerate(named)
    ]
    width, height = WIDTH * len(panels), HEIGHT + 26
    back = element("rect", width=width, height=height, fill="white")
    return element(
        "svg", back, drawn, keys, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}",
        font_family="system-ui, sans-serif", font_size="11",
    )  # fmt: skip


def _panel(panel: Panel, found: Found) -> list[Markup]:
    lines = {
        benchmark: {int(samples): figures[name] for samples, figures in found.get(benchmark, {}).items()}
        for benchmark, name in panel.names.items()
    }
    top = 1.1 * max([panel.aim or 0.0, *(value for line in lines.values() for value in line.values())])
    decades = sorted({samples for line in lines.values() for samples in line})

    def x(samples: int) -> float:
        first, last = math.log10(decades[0]), math.log10(decades[-1])
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(samples) - first) / (last - first)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top

    marks = [
        _text(LEFT, 24, panel.title, INK),
        _rule(LEFT, WIDTH - RIGHT, y(0), INK),
        _text(LEFT - 6, y(0) + 4, "0", QUIET, "end"),
    ]
    marks += [_text(x(samples), HEIGHT - 10, f"{samples:,}", QUIET, "middle") for samples in decades]
    if panel.aim is not None:
        marks += [_rule(LEFT, WIDTH - RIGHT, y(panel.aim), QUIET, dashed=True)]
        marks += [_text(WIDTH - RIGHT, 24, panel.aimed.format(panel.aim), QUIET, "end")]
    for benchmark, line in lines.items():
        points = [(x(samples), y(value), value) for samples, value in sorted(line.items())]
        path = " ".join(f"{'L' if place else 'M'}{px:.1f} {py:.1f}" for place, (px, py, _) in enumerate(points))
        marks.append(element("path", d=path, fill="none", stroke=COLOURS[benchmark], stroke_width=2.0))
        for px, py, value in points:
            marks.append(element("circle", cx=px, cy=py, r=3.0, fill=COLOURS[benchmark]))
            marks.append(_text(px, py - 7, f"{value:.2g}" if value < 10 else f"{value:,.0f}", INK, "middle"))
    return marks


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> Markup:
    return element("text", text, x=x, y=y, fill=colour, text_anchor=anchor)


def _rule(start: float, end: float, y: float, colour: str, *, dashed: bool = False) -> Markup:
    return element("line", x1=start, x2=end, y1=y, y2=y, stroke=colour, stroke_dasharray="4 3" if dashed else None)


def main() -> None:
    found = json.loads(FIGURES.read_text())
    for name, panels in DRAWINGS.items():
        file = FIGURES.with_name(name)
        file.write_text(joined(drawing(found, panels), "\n"))
        print(file)


if __name__ == "__main__":
    main()
