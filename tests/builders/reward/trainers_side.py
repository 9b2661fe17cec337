"""Runs inside an environment with the published TRL and OpenRLHF: each asks for rewards as it does in training.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import os
import sys
import tempfile
from typing import Any


def of_trl(asked: dict[str, Any]) -> dict[str, list[float]]:
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from evalrun_trainers.trl_reward import code_reward, code_reward_async

    os.environ["EVALRUN_REWARD_URL"] = asked["url"]
    rows = [{"prompt": "p", "ground_truth": row["ground_truth"]} for row in asked["rows"]]
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=asked["model"],
            reward_funcs=[code_reward, code_reward_async],
            args=GRPOConfig(
                output_dir=directory, use_cpu=True, report_to=[], per_device_train_batch_size=2, num_generations=2,
                bf16=False,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(asked["model"]),
        )  # fmt: skip
        completions = [row["solution"] for row in asked["rows"]]
        rewards = trainer._calculate_rewards(rows, ["p"] * len(rows), completions, [[1]] * len(rows))
        assert isinstance(rewards, torch.Tensor)
        names = trainer.reward_func_names
    return {name: rewards[:, index].tolist() for index, name in enumerate(names)}


def of_openrlhf(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what OpenRLHF's executor gets from its remote reward model."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    async def every() -> list[Any]:
        executor = SingleTurnAgentExecutor(f"{asked['url']}/get_reward?run=openrlhf")
        calls = [
            executor._fetch_rewards_via_http([f"p{row['solution']}<|im_end|>"], ["p"], [row["ground_truth"]])
            for row in asked["rows"]
        ]
        return [answers[0] for answers in await asyncio.gather(*calls)]

    return asyncio.run(every())


def main() -> None:
    asked = json.load(sys.stdin)
    print("ANSWER" + json.dumps({"openrlhf": of_openrlhf(asked), "trl": of_trl(asked)}))


if __name__ == "__main__":
    main()
