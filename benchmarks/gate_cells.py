"""The cells that `gate_characteristics.py` measures, their file, and the tables of docs/gates.md made from them."""

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, get_args

from gate_scenarios import CHANGES, DIFFICULTIES, SAMPLES, Setting
from scipy.stats import binom

GateKind = Literal["maxRegression", "minImprovement", "anchor", "weighted datasets", "benchmark", "similar"]
"""Kinds of gates. The last two are sequential gates, named by their population."""
IntervalKind = Literal["share", "percentile", "amount"]
"""Kinds of intervals: of one run's share or percentile, or of the difference of an amount between two runs."""

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "gates.md"
BEGIN, END = "<!-- characteristics -->\n", "<!-- /characteristics -->\n"
PARSED: Final[Mapping[object, Callable[[str], Any]]] = {int: int, float: float, str: str}
UNLIKELY: Final = 1e-5
"""A cell beyond this quantile of the binomial distribution at the nominal level fails the benchmark."""
NAMES: Final = {
    "maxRegression": "`maxRegression`",
    "minImprovement": "`minImprovement`",
    "anchor": "`anchor`",
    "weighted datasets": "`datasets` with weights",
    "benchmark": "sequential, `benchmark`",
    "similar": "sequential, `similar`",
    "share": "interval of a share",
    "percentile": "interval of a 95th percentile",
    "amount": "interval of an amount's difference",
}


@dataclass(frozen=True)
class Cell:
    """The findings in one cell, as shares of its replicates."""

    kind: str
    samples: int
    difficulty: str
    change: str
    missing: str
    problems: int
    replicates: int
    nominal: float
    wrong: float
    """Share of the more frequent of the two wrong decisions; for an interval, how often it misses the truth."""
    passes: float
    """Share of passes at two points better than the margin; for an interval, how often there is an interval."""
    fails: float
    """Share of failures at three points worse than the margin."""
    judged_wrong: float
    """`wrong`, had the problems alone decided whose answers were all judged."""
    usual_wrong: float
    """`wrong`, had the t-interval over these problems decided."""

    @property
    def setting(self) -> Setting:
        return Setting(self.samples, self.difficulty, self.change, self.missing)

    @property
    def key(self) -> tuple[str, int, str, str, str, int]:
        """Values that identify the cell, in the order of the file."""
        return self.kind, self.problems, self.missing, self.difficulty, self.change, self.samples

    @property
    def allowed(self) -> float:
        """The share of wrong decisions beyond which the level is not kept."""
        return float(binom.ppf(1 - UNLIKELY, self.replicates, self.nominal)) / self.replicates


def read_cells(file: Path) -> list[Cell]:
    """Return the cells of a file; none if there is no file."""
    if not file.exists():
        return []
    with file.open(newline="") as stream:
        return [
            Cell(**{each.name: PARSED[each.type](row[each.name]) for each in fields(Cell)})
            for row in csv.DictReader(stream)
        ]


def write_cells(file: Path, cells: Iterable[Cell]) -> None:
    """Write a file of cells, one per line."""
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [each.name for each in fields(Cell)], lineterminator="\n")
        writer.writeheader()
        for cell in sorted(cells, key=lambda each: each.key):
            values = asdict(cell).items()
            writer.writerow({name: f"{each:.5g}" if isinstance(each, float) else each for name, each in values})


def replace_table(page: str, cells: Sequence[Cell]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{kinds_table(cells)}\n{settings_table(cells)}{END}{after}"


def kinds_table(cells: Sequence[Cell]) -> str:
    """Return one row per kind and number of problems: the worst setting, and the power over settings."""
    lines = [
        "| Gate or interval | Problems | Wrong at most | Judged alone | t-interval | Passes | Fails |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in (*get_args(GateKind), *get_args(IntervalKind)):
        of_kind = [each for each in cells if each.kind == kind]
        for problems in sorted({each.problems for each in of_kind}):
            found = [each for each in of_kind if each.problems == problems]
            complete = [each for each in found if each.missing in {"none", ""}]
            worst = [max(getattr(each, name) for each in found) for name in ("wrong", "judged_wrong", "usual_wrong")]
            if kind in get_args(GateKind):
                power = [_spread(complete, name) for name in ("passes", "fails")]
            else:
                worst[1:] = [float("nan"), worst[2] if kind != "percentile" else float("nan")]
                power = ["", ""]
            shown = [_percent(each) for each in worst]
            lines.append(f"| {NAMES[kind]} | {problems:,} | {' | '.join([*shown, *power])} |")
    return "\n".join(lines) + "\n"


def settings_table(cells: Sequence[Cell]) -> str:
    """Return the gate with `maxRegression` by setting: wrong, passes and fails at each number of problems."""
    found = {each.key: each for each in cells if each.kind == "maxRegression" and each.missing == "none"}
    sizes = sorted({each.problems for each in found.values()})
    lines = [
        f"| k | Problems are | Change | {' | '.join(f'n = {size:,}' for size in sizes)} |",
        "|---|---|---|" + "---|" * len(sizes),
    ]
    for samples, difficulty, change in product(SAMPLES, DIFFICULTIES, CHANGES):
        shown = []
        for size in sizes:
            each = found.get(("maxRegression", size, "none", difficulty, change, samples))
            values = [] if each is None else [each.wrong, each.passes, each.fails]
            shown.append(" / ".join(f"{100 * value:.1f}" for value in values))
        lines.append(f"| {samples} | {difficulty} | {change} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _spread(cells: Sequence[Cell], name: str) -> str:
    """Return the median over settings, and the least and the greatest."""
    values = [100 * getattr(each, name) for each in cells]
    return f"{statistics.median(values):.0f} % ({min(values):.0f} to {max(values):.0f})" if values else ""


def _percent(value: float) -> str:
    return "" if value != value else f"{100 * value:.1f} %"
