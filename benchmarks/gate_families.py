"""How often a run with several gates gets a wrong decision, with the correction of its gates and without.

Each gate compares another dataset, on which the candidate is worse than the baseline by exactly the margin: there a
gate may pass, and fail, in 2.5 % each. A run is wrong where any of its gates is.

.venv/bin/python benchmarks/gate_families.py --replicates 1000
"""

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from scipy.stats import binom

from evalrun_api.v1alpha1.gates import Gate
from evalrun_results.comparisons.gate import GateDecision, decide_gate
from evalrun_results.metrics.problem_totals import DatasetTotals

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.results.stored_runs import samples_of, totals_of

FAMILIES: Final = (1, 2, 5, 10)
PROBLEMS: Final = 164
MARGIN: Final = 0.05
SOLVED: Final = 0.5
LOST: Final = MARGIN / SOLVED
"""Share of the baseline's solved problems that the candidate loses, so that the true difference is the margin."""
NOMINAL: Final = 0.025
UNLIKELY: Final = 1e-5
"""Shares beyond this quantile of the binomial distribution fail the benchmark."""
SAMPLES: Final = 1
COUNTED: Final = tuple(
    (corrected, wrong) for corrected in (True, False) for wrong in (GateDecision.PASS, GateDecision.FAIL)
)


def draw_runs(draws: np.random.Generator, dataset: str) -> tuple[dict[str, DatasetTotals], dict[str, DatasetTotals]]:
    """Draw the problems of one dataset that a baseline and a candidate solved. Return the totals of both."""
    baseline = draws.random(PROBLEMS) < SOLVED
    candidate = baseline & (draws.random(PROBLEMS) >= LOST)
    first, second = (
        dict(totals_of(samples_of([(SAMPLES, int(each)) for each in solved], dataset=dataset)))
        for solved in (baseline, candidate)
    )
    return first, second


def decisions(
    runs: Sequence[tuple[dict[str, DatasetTotals], dict[str, DatasetTotals]]], family: int
) -> set[GateDecision]:
    """Return the decisions of one run's gates, each decided as a member of a family of this size."""
    found = set()
    for baseline, candidate in runs:
        (name,) = candidate
        gate = Gate.model_validate({"baseline": "before", "dataset": name, "maxRegression": str(MARGIN)})
        found.add(decide_gate(gate, baseline, candidate, family=family).decision)
    return found


def draw_and_decide(family: int, replicate: int) -> Counter[tuple[bool, GateDecision]]:
    """Return which wrong decisions the gates of one run make, with the correction (True) and without it (False)."""
    draws = np.random.default_rng([52, family, replicate])
    runs = [draw_runs(draws, f"d{place}") for place in range(family)]
    found = {corrected: decisions(runs, family if corrected else 1) for corrected in (True, False)}
    return Counter((corrected, wrong) for corrected, wrong in COUNTED if wrong in found[corrected])


def main() -> int:
    """Print the shares. Return 1 if a corrected share exceeds the allowed share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    replicates = options.replicates
    allowed = float(binom.ppf(1 - UNLIKELY, replicates, NOMINAL)) / replicates
    kept = True
    print(f"{replicates} runs, {PROBLEMS} problems a gate; at most {allowed:.1%} either way")
    print("| gates | any wrong PASS | any wrong FAIL | PASS without correction | FAIL without correction |")
    print("|--:|--:|--:|--:|--:|")
    with multiprocessing.Pool(options.workers) as pool:
        for family in FAMILIES:
            counts: Counter[tuple[bool, GateDecision]] = Counter()
            for each in pool.imap_unordered(partial(draw_and_decide, family), range(replicates), chunksize=10):
                counts += each
            shares = {key: counts[key] / replicates for key in COUNTED}
            kept = kept and max(shares[True, GateDecision.PASS], shares[True, GateDecision.FAIL]) <= allowed
            print(f"| {family} | {' | '.join(f'{100 * share:.1f} %' for share in shares.values())} |", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
