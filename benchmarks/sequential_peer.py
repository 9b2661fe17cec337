"""Compares the capital of a sequential gate with that of the published package `confseq`, on recorded answers.

`confseq` is by the authors of the method. It builds with Boost's headers, so it is not among the dependencies here:
`pip install confseq` (or unpack its source: `confseq.betting` is pure Python), then

    .venv/bin/python benchmarks/sequential_peer.py
"""

import gzip
import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np

from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import DIFFERENCE, MAX_AT_RISK, STAKES, log_capital_above
from evalrun_results.sequential.order import order_problems

COMPLETIONS = Path(os.environ.get("EVALRUN_TEST_DATA", "../shared/data")) / "completions"
QWEN = "humaneval_ollama-qwen2.5-coder_7b.jsonl.gz"
PAIRS = (("humaneval_gpt-4_simple_a.jsonl.gz", QWEN), (QWEN, "humaneval_ollama-codellama_7b.jsonl.gz"))
LEAST = -0.02


def main() -> int:
    try:
        peer = importlib.import_module("confseq.betting")
    except ImportError as error:
        print(f"confseq is not here ({error}): see the top of this file", file=sys.stderr)
        return 2
    worst = 0.0
    for first, second in PAIRS:
        baseline, candidate = recorded(first), recorded(second)
        ids = order_problems(0, "humaneval", baseline.keys() & candidate.keys())
        values = np.array([float(candidate[each]) - float(baseline[each]) for each in ids])
        for population in (len(values), None):
            # The last value is left out, because the package treats the mean of all values as known.
            seen = values[:-1]
            ours = log_capital_above(seen, LEAST, DIFFERENCE, population)
            off = float(np.abs(ours - peers(peer, seen, population)).max())
            worst = max(worst, off)
            kind = "without" if population else "with"
            print(f"{second} against {first}, {kind} replacement: largest difference of the logarithms {off:.1e}")
    return 0 if worst < 1e-9 else 1


def peers(peer: object, values: Floats, population: int | None) -> Floats:
    """Return the logarithm of the capital that the package computes. The package takes values from 0 to 1."""
    count = len(values)
    growth = np.ones(count) if population is None else population / (population - np.arange(count))
    total = np.zeros(count)
    for stake in STAKES:
        total += peer.betting_mart(  # type: ignore[attr-defined]
            (values + 1) / 2,
            (LEAST + 1) / 2,
            lambdas_fn_positive=lambda _x, _m, stake=stake: stake * growth,
            lambdas_fn_negative=lambda _x, _m: 0 * growth,
            N=population,
            theta=1,
            trunc_scale=MAX_AT_RISK,
        )
    logs: Floats = np.log(total / len(STAKES))
    return logs


def recorded(file: str) -> dict[str, bool]:
    with gzip.open(COMPLETIONS / file, "rt", encoding="utf-8") as lines:
        return {row["task_id"]: bool(row["recorded"]) for row in map(json.loads, lines)}


if __name__ == "__main__":
    sys.exit(main())
