"""How often a race drops the best checkpoint, and how many answers it needs; beside it the same in another order.

Ten checkpoints solve the same problems; the best one does so better than nine equal ones by 0, 2 or 5 points. A cell is
a size of the benchmark, that lead and a population: of these very problems drawn in 2,000 orders (benchmark), or of
problems drawn like them 2,000 times (similar). Checkpoints agree on most problems: each one's answers differ from a
common one's on a tenth of them. `as they come` is the race over problems in the order in which they end, those first
that another checkpoint solves. evalrun never takes that order: the column shows what its own, fixed by chance, is for.
`given` is what a race that is under way has its runs answer: it looks at the end of each block alone. `at most` is the
same had every run that is dropped been a whole block ahead of the others, which is as far as a run gets.

    .venv/bin/python benchmarks/races.py                   # every cell: over an hour of CPU
    .venv/bin/python benchmarks/races.py --sizes 164 --orders 200
    .venv/bin/python benchmarks/races.py --runs DIR DIR DIR    # finished runs, of one sample a problem, instead
"""

import argparse
import itertools
import json
import math
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from evalrun_cli.local.live_race import next_block
from evalrun_results.sequential.expected_race import RaceField, make_runs
from evalrun_results.sequential.mean_decision import Population
from evalrun_results.sequential.race import ERROR, RaceFinding, run_race
from evalrun_results.stored_run import StoredRun

FIGURES = Path(__file__).with_name("races.json")
SIZES = (164, 500, 1055, 4000)
LEADS = (0.0, 0.02, 0.05)
POPULATIONS: tuple[Population, ...] = ("benchmark", "similar")
CHECKPOINTS, SOLVED, DIFFER = 10, 0.6, 0.1
HURRIED = 10
"""One order in this many is also raced as its answers come."""


@dataclass(frozen=True)
class Cell:
    """The findings in one cell, as shares of its orders."""

    population: str
    size: int
    lead: float
    orders: int
    best_dropped: float
    """Share of races that drop the leading checkpoint; with a lead of 0, the first of ten equal checkpoints."""
    decided: float
    """Share of races with one checkpoint left."""
    needed: float
    """Mean share of the answers until the decision, or all of them."""
    given: float
    """The same share for a race that is under way, which looks at the end of each block."""
    given_at_most: float
    """The same share, had every dropped run been a block ahead."""
    best_dropped_as_they_come: float

    @property
    def allowed(self) -> float:
        """Share of races that may be wrong."""
        return allowed_share(self.orders)


def allowed_share(orders: int) -> float:
    """Return the allowed share of errors: 5 % plus three standard errors of this number of orders."""
    return ERROR + 3 * math.sqrt(ERROR * (1 - ERROR) / orders)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--orders", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--runs", nargs="+", default=(), metavar="DIR")
    options = parser.parse_args()
    if options.runs:
        return race_stored_runs(options.runs, options.orders)
    cells = []
    wanted = list(itertools.product(POPULATIONS, options.sizes, LEADS))
    print(
        "population    size  lead  best dropped  allowed  decided  answers needed   given  at most  "
        "best dropped as they come"
    )
    with multiprocessing.Pool(options.workers) as pool:
        # The largest cells take longest, so they begin first.
        begun = {
            cell: pool.apply_async(race_cell, (options.orders, *cell))
            for cell in sorted(wanted, key=lambda cell: -cell[1])
        }
        for cell in wanted:
            each = begun[cell].get()
            cells.append(each)
            print(
                f"{each.population:<12} {each.size:>5} {each.lead:>5.2f} {each.best_dropped:>12.2%} "
                f"{each.allowed:>8.2%} {each.decided:>8.1%} {each.needed:>14.1%} {each.given:>8.1%} "
                f"{each.given_at_most:>8.1%} {each.best_dropped_as_they_come:>20.1%}",
                flush=True,
            )
    if tuple(options.sizes) == SIZES:
        FIGURES.write_text(json.dumps([asdict(each) for each in cells], indent=1) + "\n")
    return int(any(each.best_dropped > each.allowed for each in cells))


def race_stored_runs(places: Sequence[str], orders: int) -> int:
    """Race finished runs in many orders. Print for each population how often a run is dropped, or is left alone."""
    accepted = [
        {each.problem_id: float(each.accepted is True) for each in StoredRun.open(place).results()} for place in places
    ]
    problems = sorted(set.intersection(*map(set, accepted)))
    values = np.array([[each[problem] for problem in problems] for each in accepted])
    best = int(values.mean(axis=1).argmax())
    wrong = 0.0
    print("population    run                             pass@1   dropped    alone")
    for population in POPULATIONS:
        rng = np.random.default_rng(20_261_126)
        races = []
        for _ in range(orders):
            drawn = values[:, draw_places(rng, population, len(problems))]
            races.append(run_race(drawn, drawn, population, len(problems)))
        for runner, place in enumerate(places):
            dropped = fmean(each.dropped_after[runner] is not None for each in races)
            alone = fmean(each.left == (runner,) for each in races)
            print(
                f"{population:<12}  {Path(place).name:<30} {values[runner].mean():>7.1%} {dropped:>9.2%} {alone:>8.1%}"
            )
        needed = fmean(each.drawn / values.size for each in races)
        print(f"{population:<12}  answers needed {needed:.1%} of {values.size}, {orders} orders")
        wrong = max(wrong, fmean(each.dropped_after[best] is not None for each in races))
    return int(wrong > allowed_share(orders))


def draw_places(rng: np.random.Generator, population: Population, size: int) -> NDArray[np.int64]:
    """Draw the problems of a benchmark in an order, or others that are distributed like them."""
    return rng.permutation(size) if population == "benchmark" else rng.integers(0, size, size)


def race_cell(orders: int, population: Population, size: int, lead: float) -> Cell:
    rng = np.random.default_rng([20_261_126, size, round(100 * lead)])
    values = make_runs(RaceField(CHECKPOINTS, size, SOLVED, DIFFER, lead), rng)
    races, hurried = [], 0
    for turn in range(orders):
        drawn = values[:, draw_places(rng, population, size)]
        races.append(run_race(drawn, drawn, population, size))
        if turn % HURRIED:
            continue
        # The problems that another checkpoint solves end first.
        soon = drawn[:, np.argsort(-drawn[1], kind="stable")]
        hurried += run_race(soon, soon, population, size).dropped_after[0] is not None
    return Cell(
        population,
        size,
        lead,
        orders,
        fmean(each.dropped_after[0] is not None for each in races),
        fmean(len(each.left) == 1 for each in races),
        fmean(each.drawn / values.size for each in races),
        fmean(drawn_in_blocks(each, size, 0) / values.size for each in races),
        fmean(drawn_in_blocks(each, size, 1) / values.size for each in races),
        hurried / len(range(0, orders, HURRIED)),
    )


def drawn_in_blocks(race: RaceFinding, size: int, ahead: int) -> int:
    """Return how many problems the runs draw in a race that looks at the end of each block.

    A dropped run is `ahead` blocks further than the problem that dropped it asks for.
    """
    ends = [next_block(0, None)]
    while ends[-1] < size:
        ends.append(next_block(ends[-1], size))
    ends += [size] * ahead
    drawn = 0
    for after in race.dropped_after:
        needed = race.stopped_after if after is None else after
        block = next(place for place, end in enumerate(ends) if end >= needed)
        drawn += min(ends[block if after is None else block + ahead], size)
    return drawn


if __name__ == "__main__":
    sys.exit(main())
