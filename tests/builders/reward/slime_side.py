"""Runs beneath the published slime: its reward hub loads ours by name, and scores samples as in a rollout.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import os
import sys
from argparse import Namespace
from typing import Any

from slime.rollout.filter_hub.base_types import call_dynamic_filter
from slime.rollout.rm_hub import async_rm, batched_async_rm
from slime.utils.misc import load_function
from slime.utils.types import Sample

REWARD, FILTER = "evalrun_trainers.slime_reward.judged_reward", "evalrun_trainers.slime_reward.keep_judged_group"


async def ask(asked: dict[str, Any]) -> dict[str, Any]:
    args = Namespace(custom_rm_path=REWARD, rm_type="", reward_key=None, eval_reward_key=None)
    samples = [
        Sample(prompt="Square it.", response=row["solution"], label=row["ground_truth"], status=Sample.Status.COMPLETED)
        for row in asked["rows"]
    ]
    group = await batched_async_rm(args, samples)
    alone = list(await asyncio.gather(*(async_rm(args, sample) for sample in samples)))
    os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_REWARD_TIMEOUT_SECONDS"] = asked["nobody"], "1"
    try:
        gone = str(await async_rm(args, samples[0]))
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        gone = type(error).__name__
    kept = []
    os.environ["EVALRUN_REWARD_ON_NOT_JUDGED"] = "nan"
    for rewards in (group, [*group[:-1], await async_rm(args, samples[-1])]):
        for sample, reward in zip(samples, rewards, strict=True):
            sample.reward = reward
        output = call_dynamic_filter(load_function(FILTER), args, samples)
        nested = call_dynamic_filter(load_function(FILTER), args, [[samples[0]], samples[1:]])
        kept.append([bool(output.keep), output.reason, bool(nested.keep)])
    return {"group": group, "alone": alone, "gone": gone, "kept": kept}


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["EVALRUN_REWARD_URL"] = asked["url"]
    print("ANSWER" + json.dumps(asyncio.run(ask(asked))))


if __name__ == "__main__":
    main()
