"""How often a schedule's race loses the best checkpoint, and how many answers it needs; beside it every run whole.

The checkpoints of `races.py` come one after another, in an order of chance. Each is compared with the best one so far
by the gate that `spec.race` adds: one that fails it is stopped there, one that passes is measured whole and is the best
from then on. A cell is a size of the benchmark and the lead of the best one, over 2,000 orders of problems and
checkpoints. `lost` counts orders that end with another best one than the one that leads; `at once` is the share that a
race of all ten at once needs (`evalrun race`, the column `given` of `races.py`).

    .venv/bin/python benchmarks/schedule_races.py                 # every cell: some 10 min of CPU
    .venv/bin/python benchmarks/schedule_races.py --sizes 164 --orders 200
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from races import CHECKPOINTS, DIFFER, LEADS, SIZES, SOLVED, allowed_share, drawn_in_blocks

from evalrun_api.v1alpha1.schedule import Race
from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import DIFFERENCE
from evalrun_results.sequential.expected_race import RaceField, make_runs
from evalrun_results.sequential.mean_decision import Values, count_until_decision
from evalrun_results.sequential.race import run_race

FIGURES = Path(__file__).with_name("schedule_races.json")
ONE_ERROR = (1 - float(Race(dataset="any", checkpoints=CHECKPOINTS).confidence)) / 2
AT_ONCE = 20
"""One order in this many is also raced at once."""


@dataclass(frozen=True)
class Cell:
    """The findings in one cell, as shares of its orders or of the answers."""

    size: int
    lead: float
    orders: int
    lost: float
    needed: float
    at_once: float

    @property
    def allowed(self) -> float:
        """Share of orders that may be wrong."""
        return allowed_share(self.orders)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--orders", type=int, default=2000)
    options = parser.parse_args()
    cells = []
    print(" size  lead   lost  allowed  answers needed  at once")
    for size in options.sizes:
        for lead in LEADS:
            each = cell(size, lead, options.orders)
            cells.append(each)
            print(
                f"{size:>5} {lead:>5.2f} {each.lost:>6.2%} {each.allowed:>8.2%} {each.needed:>15.1%} "
                f"{each.at_once:>8.1%}",
                flush=True,
            )
            FIGURES.write_text(json.dumps([asdict(each) for each in cells], indent=1) + "\n")
    return int(any(each.lost > each.allowed for each in cells))


def cell(size: int, lead: float, orders: int) -> Cell:
    rng = np.random.default_rng([20_261_128, size, round(100 * lead)])
    values = make_runs(RaceField(CHECKPOINTS, size, SOLVED, DIFFER, lead), rng)
    most, lost, drawn, at_once = values.sum(axis=1).max(), 0, 0, 0
    for turn in range(orders):
        ordered = values[:, rng.permutation(size)]
        best, *others = rng.permutation(CHECKPOINTS)
        drawn += size
        for other in others:
            after = compared(ordered[other], ordered[best])
            drawn += size if after > 0 else -after
            best = other if after > 0 else best
        lost += values[best].sum() < most
        if turn % AT_ONCE == 0:
            at_once += drawn_in_blocks(run_race(ordered, ordered, "benchmark", size), size, 0)
    raced = len(range(0, orders, AT_ONCE))
    return Cell(size, lead, orders, lost / orders, drawn / orders / values.size, at_once / raced / values.size)


def compared(values: Floats, best: Floats) -> int:
    """Return after how many problems the gate decided; negative if the checkpoint failed it."""
    gains = values - best
    return int(count_until_decision(Values(gains, gains, -best, 1 - best, DIFFERENCE), 0.0, "benchmark", ONE_ERROR))


if __name__ == "__main__":
    sys.exit(main())
