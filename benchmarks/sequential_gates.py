"""How often sequential gates err, and how many problems they need; beside them the fixed-n interval, looked at often.

A cell is a size of the benchmark, a share of answers that flip, and a true difference: 2,000 orders of the same
problems (population: benchmark), or 2,000 draws of problems like them (similar). The gate is maxRegression "0.02" at
95 %. In each cell the rule of the product itself decides; the fixed-n interval (Bonett and Price, as the gate has where
few differ) is looked at after every 16 problems from the 30th on, and decides when it can.

    .venv/bin/python benchmarks/sequential_gates.py              # every cell, and sequential_gates.svg; 20 min of CPU
    .venv/bin/python benchmarks/sequential_gates.py --sizes 500 --populations similar --no-plot
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from sequential_gates_plot import DRAWING, drawing

from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import DIFFERENCE, Integers, first_time, log_capital_above
from evalrun_results.sequential.mean_decision import Population, Values, count_until_decision

FIGURES = Path(__file__).with_name("sequential_gates.json")
SIZES = (164, 500, 1055, 4000)
FLIPS = (0.05, 0.10, 0.20)
DIFFERENCES = (-0.10, -0.07, -0.05, -0.04, -0.03, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03, 0.05)
POPULATIONS: tuple[Population, ...] = ("benchmark", "similar")
LEAST, ERROR, CONFIDENCE = -0.02, 0.025, 0.95
FIRST_LOOK, BATCH = 30, 16
CELLS = 500_000
"""Maximum number of values that are held at a time."""


@dataclass(frozen=True)
class Cell:
    """The findings in one cell, as shares of its orders."""

    population: str
    size: int
    flips: float
    difference: float
    """True difference over these problems, as a share of 1. It may deviate from the wanted one: flips are whole."""
    orders: int
    wrong: float
    open: float
    needed: float
    """Problems until the decision, or all of them, as a share of the size."""
    covered: float
    """Share of the intervals at the moment of stopping that hold the truth."""
    fixed_wrong: float
    """Share of wrong decisions of the fixed-n interval that is looked at after every batch."""

    @property
    def allowed(self) -> float:
        """Allowed share of wrong decisions: 2.5 % plus three standard errors."""
        return ERROR + 3 * math.sqrt(ERROR * (1 - ERROR) / self.orders)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--populations", nargs="+", default=POPULATIONS)
    parser.add_argument("--orders", type=int, default=2000)
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    kept = {key_of(each): each for each in read()}
    for population in options.populations:
        for size in options.sizes:
            for each in cells(population, size, options.orders):
                kept[key_of(each)] = each
            write(kept.values())
            print(summary(each for each in kept.values() if (each.population, each.size) == (population, size)))
    if not options.no_plot:
        DRAWING.write_text(drawing([asdict(each) for each in kept.values()]))
        print(DRAWING)
    return 1 if any(each.wrong > each.allowed for each in kept.values()) else 0


def cells(population: Population, size: int, orders: int) -> Iterator[Cell]:
    for flips in FLIPS:
        for difference in DIFFERENCES:
            if abs(difference) <= flips + 1e-9:
                yield cell(population, size, flips, difference, orders)


def cell(population: Population, size: int, flips: float, difference: float, orders: int) -> Cell:
    """Simulate one cell, in batches of orders."""
    rng = np.random.default_rng([size, round(1000 * flips), round(1000 * difference) + 1000, len(population)])
    changes, solved = problems(size, flips, difference)
    truth = float(changes.mean())
    found: list[tuple[Integers, Integers, Integers]] = []
    while (done := sum(len(each[0]) for each in found)) < orders:
        rows = min(orders - done, max(1, CELLS // size))
        if population == "benchmark":
            places = np.argsort(rng.random((rows, size)), axis=1)
        else:
            places = rng.integers(0, size, (rows, size))
        found.append(outcomes(population, changes[places], solved[places], truth))
    after, covered, fixed = (np.concatenate(column) for column in zip(*found, strict=True))
    times = np.abs(after)
    return Cell(
        population=population,
        size=size,
        flips=flips,
        difference=truth,
        orders=orders,
        wrong=float(wrong(after, truth).mean()),
        open=float((after == 0).mean()),
        needed=float(np.where(times > 0, times, size).mean() / size),
        covered=float(covered.mean()),
        fixed_wrong=float(wrong(fixed, truth).mean()),
    )


def problems(size: int, flips: float, difference: float) -> tuple[Floats, Floats]:
    """Return the change of each problem (1 gained, -1 lost, 0 neither), and whether the baseline solved it."""
    flipped, net = round(size * flips), round(size * difference)
    gained = (flipped + net) // 2
    changes = np.zeros(size)
    changes[:gained], changes[gained : 2 * gained - net] = 1.0, -1.0
    # The baseline solved half of the problems that do not change.
    solved = (np.arange(size) % 2).astype(np.float64)
    solved[:gained], solved[gained : 2 * gained - net] = 0.0, 1.0
    return changes, solved


def outcomes(
    population: Population, values: Floats, solved: Floats, truth: float
) -> tuple[Integers, Integers, Integers]:
    """Return when each order decided (negative: failed), whether its interval then held the truth, and when the peer
    decided."""
    drawn = Values(values, values, -solved, 1 - solved, DIFFERENCE)
    after = count_until_decision(drawn, LEAST, population, ERROR)
    size = values.shape[1] if population == "benchmark" else None
    stop = np.where(after == 0, values.shape[1], np.abs(after))
    too_high = first_time(log_capital_above(values, truth, DIFFERENCE, size), ERROR)
    too_low = first_time(log_capital_above(-values, -truth, DIFFERENCE, size), ERROR)
    missed = ((too_high > 0) & (too_high <= stop)) | ((too_low > 0) & (too_low <= stop))
    return after, (~missed).astype(np.int64), looked_at_often(values)


def looked_at_often(values: Floats) -> Integers:
    """Return when the fixed-n interval, looked at after every batch, first decided (negative: failed)."""
    counts = np.arange(FIRST_LOOK, values.shape[1] + 1, BATCH)
    if counts[-1] != values.shape[1]:
        counts = np.append(counts, values.shape[1])
    sums = np.cumsum(values, axis=1)[:, counts - 1]
    # The interval counts one more gained and one more lost problem.
    squares = np.cumsum(values**2, axis=1)[:, counts - 1] + 2
    many = counts + 2
    mean = sums / many
    half = NormalDist().inv_cdf(1 - ERROR) * np.sqrt((squares - many * mean**2) / (many - 1) / many)
    passes, fails = mean - half >= LEAST, mean + half < LEAST
    decides = passes | fails
    first = decides.argmax(axis=1)
    row = np.arange(len(values))
    found: Integers = np.where(decides.any(axis=1), np.where(passes[row, first], 1, -1) * counts[first], 0)
    return found


def wrong(after: Integers, truth: float) -> Integers:
    return ((after < 0) if truth >= LEAST - 1e-9 else (after > 0)).astype(np.int64)


def key_of(each: Cell) -> tuple[object, ...]:
    return each.population, each.size, each.flips, each.difference


def read() -> list[Cell]:
    return [Cell(**each) for each in json.loads(FIGURES.read_text())] if FIGURES.exists() else []


def write(found: Iterable[Cell]) -> None:
    ordered = sorted(found, key=key_of)
    rows = [{name: round(v, 6) if isinstance(v, float) else v for name, v in asdict(each).items()} for each in ordered]
    FIGURES.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def summary(found: Iterator[Cell]) -> str:
    """Return one line about the cells of a population and size: the worst of each figure, and the needed problems."""
    each = list(found)
    worst = max(each, key=lambda one: one.wrong)
    fixed = max(each, key=lambda one: one.fixed_wrong)
    least = min(each, key=lambda one: one.covered)
    limit = ""
    # No test with this error needs fewer problems on average than Wald's bound.
    if worst.population == "similar":
        limit = "; least by Wald's bound, without the end of the benchmark: " + ", ".join(
            f"{100 * wald(one.flips, one.difference) / one.size:.0f} %" for one in each if is_far(one)
        )
    far = [one for one in each if is_far(one)]
    needed = ", ".join(f"{100 * one.needed:.0f} % at {100 * one.difference:+.1f} ({one.flips:.0%})" for one in far)
    return (
        f"{worst.population} {worst.size:,}: {len(each)} cells; wrong at most {worst.wrong:.2%} "
        f"(allowed {worst.allowed:.2%}); coverage at least {least.covered:.1%}; fixed-n looked at often errs up to "
        f"{fixed.fixed_wrong:.1%}; needed 5 points from the margin: {needed}{limit}"
    )


def is_far(one: Cell) -> bool:
    """Return whether a cell is one of those with an aim: few flips, and 5 points from the margin."""
    return one.flips <= 0.1 and abs(abs(one.difference - LEAST) - 0.05) < 0.004


def wald(flips: float, difference: float) -> float:
    """Return how many values a test that rules the bound out with this error must see on average (Wald 1945).

    The number is log(1 / error) divided by the information of one value: the divergence from the nearest distribution
    at the bound, over 1, 0 and -1 with any share of flips.
    """
    truth = np.array([(flips + difference) / 2, (flips - difference) / 2, 1 - flips])
    losses = np.linspace(0.0005, 0.6, 20_000)[np.newaxis, :]
    gains = losses + LEAST
    shares = np.concatenate([gains, losses, 1 - gains - losses])
    known = (shares > 0).all(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = truth[:, np.newaxis] * np.log(truth[:, np.newaxis] / shares[:, known])
    return math.log(1 / ERROR) / float(np.where(truth[:, np.newaxis] > 0, each, 0.0).sum(axis=0).min())


if __name__ == "__main__":
    sys.exit(main())
