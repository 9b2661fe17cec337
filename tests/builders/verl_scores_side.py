"""Runs inside the environment of the published verl: its own scores of answers, without a sandbox.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import json
import sys
from typing import Any

from verl.utils.reward_score import default_compute_score


def scored(row: dict[str, Any]) -> float | str:
    """Return a score, or the name of what verl raises."""
    try:
        result = default_compute_score(row["data_source"], row["answer"], row["ground_truth"])
    except Exception as error:  # noqa: BLE001 - verl's scorers raise what they like
        return type(error).__name__
    return float(result["score"] if isinstance(result, dict) else result)


if __name__ == "__main__":
    scores = [scored(row) for row in json.load(sys.stdin)]
    print("ANSWER" + json.dumps(scores))
