"""Runs inside an environment with the published openreward: serves our environment, and asks it through its client.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import os
import sys
from typing import Any

from builders.reward.environment_server import serving
from openreward.api.environments.client import AsyncEnvironmentsAPI
from openreward.api.errors import OpenRewardError

from evalrun_trainers import ors_environment


async def episode(environment: Any, task: int, answer: str, times: int = 1) -> list[dict[str, Any]]:
    """Return what an episode's calls give, or the errors that they raise."""
    found = []
    async with environment.session(split="train", index=task) as session:
        prompt = await session.get_prompt()
        for _ in range(times):
            try:
                output = await session.call_terminal_tool(answer)
                found.append({
                    "prompt": prompt[0].text, "reward": output.reward, "finished": output.finished,
                    "final_status": output.metadata["final_status"],
                })  # fmt: skip
            except OpenRewardError as error:
                found.append({"error": f"{type(error).__name__}: {error}"})
    return found


async def ask(asked: dict[str, Any]) -> dict[str, Any]:
    async with serving(ors_environment.app()) as address:
        environment = AsyncEnvironmentsAPI(address, "none").get("judged", base_url=address)
        seen = [task.task_spec for task in await environment.list_tasks("train")]
        answers = await asyncio.gather(*(episode(environment, 0, answer) for answer in asked["answers"]))
        twice = await episode(environment, 0, asked["answers"][0], times=2)
        os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_REWARD_TIMEOUT_SECONDS"] = asked["nobody"], "1"
        gone = await episode(environment, 0, asked["answers"][0])
    return {"seen": seen, "answers": answers, "twice": twice, "gone": gone}


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_ORS_TASKS"] = asked["url"], asked["tasks"]
    print("ANSWER" + json.dumps(asyncio.run(ask(asked))))


if __name__ == "__main__":
    main()
