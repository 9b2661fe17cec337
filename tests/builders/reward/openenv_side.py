"""Runs inside an environment with the published OpenEnv: serves our environment, and asks it through OpenEnv's client.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import os
import sys
from typing import Any

from builders.reward.environment_server import serving
from openenv.core.generic_client import GenericEnvClient

from evalrun_trainers import openenv_environment


async def episode(address: str, task: int, answer: str, times: int = 1) -> list[dict[str, Any]]:
    """Return what an episode's steps give, or the errors that they raise."""
    found = []
    async with GenericEnvClient(base_url=address) as client:
        begun = await client.reset(task=task)
        for _ in range(times):
            try:
                step = await client.step({"answer": answer})
                found.append({
                    "prompt": begun.observation["prompt"], "reward": step.reward, "done": step.done,
                    "final_status": step.observation["final_status"],
                })  # fmt: skip
            except RuntimeError as error:
                found.append({"error": str(error)})
    return found


async def ask(asked: dict[str, Any]) -> dict[str, Any]:
    async with serving(openenv_environment.app()) as address:
        answers = await asyncio.gather(*(episode(address, 0, answer) for answer in asked["answers"]))
        twice = await episode(address, 0, asked["answers"][0], times=2)
        os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_REWARD_TIMEOUT_SECONDS"] = asked["nobody"], "1"
        gone = await episode(address, 0, asked["answers"][0], times=2)
    return {"answers": answers, "twice": twice, "gone": gone}


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_OPENENV_TASKS"] = asked["url"], asked["tasks"]
    print("ANSWER" + json.dumps(asyncio.run(ask(asked))))


if __name__ == "__main__":
    main()
