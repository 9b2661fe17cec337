"""Estimates how many problems a sequential gate needs, by simulation. Pure."""

from typing import Final

import numpy as np

from evalrun_results.sequential.confidence_sequence import DIFFERENCE
from evalrun_results.sequential.mean_decision import Population, Values, count_until_decision

ORDERS: Final = 200
SEED: Final = 20_260_101
MAX_SIMULATED_PROBLEMS: Final = 20_000
"""Maximum number of simulated problems of a larger benchmark: the needed share only falls from there."""


def problems_needed(
    problems: int, flips: float, min_gain: float, population: Population, confidence: float, *, share: float = 0.8
) -> int | None:
    """Return after how many problems an equal run is decided in `share` of the orders; None where not by the last.

    Args:
        problems: of the dataset.
        flips: share of the problems that end otherwise in an equal run.
        min_gain: gain that the gate asks for.
        population: the gate's.
        confidence: the gate's.
        share: of the orders.
    """
    played = min(problems, MAX_SIMULATED_PROBLEMS)
    flipped = round(played * flips)
    changes = np.zeros(played)
    changes[: flipped // 2], changes[flipped // 2 : 2 * (flipped // 2)] = 1.0, -1.0
    solved = (np.arange(played) % 2).astype(np.float64)
    solved[: flipped // 2], solved[flipped // 2 : 2 * (flipped // 2)] = 0.0, 1.0
    rng = np.random.default_rng(SEED)
    times = []
    for _ in range(ORDERS):
        places = rng.permutation(played) if population == "benchmark" else rng.integers(0, played, played)
        values, known = changes[places], solved[places]
        drawn = Values(values, values, -known, 1 - known, DIFFERENCE)
        after = abs(int(count_until_decision(drawn, min_gain, population, (1 - confidence) / 2)))
        times.append(after or played + 1)
    needed = int(np.quantile(times, share, method="higher"))
    return needed if needed <= played else None
