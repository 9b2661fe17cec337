"""Reads an environment's tasks from a file, and computes the reward of a completion."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalrun_trainers.client import choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import make_sample


def read_tasks(path: Path) -> list[dict[str, Any]]:
    """Return the tasks of a JSONL file. Raises ValueError, which names the line."""
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line) if line.strip() else None
        if row is None:
            continue
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), str) or row.get("ground_truth") is None:
            raise ValueError(f"{path}:{number}: a task has prompt, a text, and ground_truth")
        tasks.append(row)
    if not tasks:
        raise ValueError(f"{path}: no task")
    return tasks


async def judge_answer(task: Mapping[str, Any], answer: str) -> tuple[float, str]:
    """Return an answer's reward, and how its program ended, e.g. wrong_answer.

    Raises:
        NotJudgedError: there is no verdict, and so no reward.
    """
    options = read_options({})
    extra = {"problem_prompt": task["prompt"], "language": task.get("language")}
    sample = make_sample(task.get("data_source", ""), answer, task["ground_truth"], extra)
    result = await asyncio.wrap_future(client_for(options).submit(sample))
    return choose_reward(result, options), str(result.get("final_status") or "")
