"""Runs inside an environment with the published verifiers: scores traces as a rollout does at its end.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import os
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.configs.task import RewardFunctionConfig, TaskConfig
from verifiers.v1.trace import Trace


class Program(vf.TaskData):  # type: ignore[misc]  # absent where types are checked
    ground_truth: Any = None


class ProgramTask(vf.Task[Program]):  # type: ignore[misc]
    pass


CONFIG = TaskConfig(rewards={"evalrun": RewardFunctionConfig(fn="evalrun_trainers.verifiers_reward:judged_reward")})


async def scored(answer: str, truth: Any) -> dict[str, Any]:
    """Return what a trace says of itself after its scoring."""
    task = ProgramTask(Program(prompt="Square it.", ground_truth=truth), CONFIG)
    trace = Trace.model_construct(task=None, agent=None, root_reply=answer)
    try:
        await task.score(trace)
    except vf.RolloutError as error:  # as verifiers' own rollout does
        trace.record_error(error)
    reward = trace.rewards["evalrun"]
    return {"reward": reward and reward.value, "stop": trace.stop_condition, "errors": [e.type for e in trace.errors]}


async def every(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*(scored(row["solution"], row["ground_truth"]) for row in rows)))


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["EVALRUN_REWARD_URL"] = asked["url"]
    answer = asyncio.run(every(asked["rows"]))
    os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_REWARD_TIMEOUT_SECONDS"] = asked["nobody"], "1"
    gone = asyncio.run(every(asked["rows"][:1]))
    print("ANSWER" + json.dumps({"scored": answer, "gone": gone}))


if __name__ == "__main__":
    main()
