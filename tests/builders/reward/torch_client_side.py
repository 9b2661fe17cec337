"""Runs inside an environment with torch: a trainer's client of the four calls that keeps every id in a tensor.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

KEPT: dict[str, Callable[[Any], Any]] = {
    "int64": lambda number: torch.tensor(number, dtype=torch.int64),
    "float64": lambda number: torch.tensor(number, dtype=torch.float64),
    "batch": lambda number: torch.tensor([number])[0],
    "numpy": lambda number: np.asarray([number])[0],
}
"""Ways in which clients keep an id; each has `item()`."""


def post(url: str, path: str, body: dict[str, Any], timeout: float) -> tuple[int, dict[str, Any]]:
    """Post JSON; returns the status and the body."""
    request = urllib.request.Request(f"{url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def rewards_of(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Play one session for each way, and return rewards as a tensor holds them; no reward is NaN, never 0."""
    rewards, timeout = {}, asked["timeout"]
    for name, keep in KEPT.items():
        instance = keep(asked["instance"])
        _, started = post(url, "start_instance", {"instance_hash": instance.item()}, timeout)
        sid = keep(int(started["sid"]))
        post(url, "process_action", {"sid": sid.item(), "content": asked["content"]}, timeout)
        post(url, "postprocess", {"sid": sid.item()}, timeout)
        try:
            status, answer = post(url, "compute_reward", {"sid": sid.item()}, timeout)
        except OSError:  # too slow for this client
            status, answer = 0, {}
        reward = torch.tensor(answer["reward"] if status == 200 else float("nan"))
        rewards[name] = [status, None if torch.isnan(reward) else float(reward)]
    return rewards


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print("ANSWER" + json.dumps({name: rewards_of(url, asked) for name, url in asked["urls"].items()}))
