"""Runs beneath the published ROLL: loads our reward worker as its pipeline does, and has it score a batch.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import json
import os
import sys
from typing import Any

import numpy as np
import ray
import torch
from roll.configs.model_args import ModelArguments
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.rlvr.rlvr_config import RewardConfig
from roll.utils.import_utils import safe_import_class


def batch_of(tokenizer: Any, rows: list[dict[str, Any]]) -> DataProto:
    tokenizer.padding_side = "right"
    said = tokenizer([row["solution"] for row in rows], return_tensors="pt", padding=True)["input_ids"]
    asked = tokenizer(["Square it."] * len(rows), return_tensors="pt")["input_ids"]
    truths = np.array([row["ground_truth"] for row in rows], dtype=object)
    return DataProto.from_dict(tensors={"responses": said, "prompts": asked}, non_tensors={"ground_truth": truths})


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["EVALRUN_REWARD_URL"] = asked["url"]
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=asked["directory"])
    made = safe_import_class("evalrun_trainers.roll_worker.EvalrunRewardWorker")
    model = ModelArguments(model_name_or_path=asked["model"])
    worker = made(RewardConfig(name="code", model_args=model, world_size=1))
    worker.initialize(None)
    given = worker.compute_rewards(batch_of(worker.tokenizer, asked["rows"]))
    os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_REWARD_TIMEOUT_SECONDS"] = asked["nobody"], "1"
    try:
        gone = str(worker.compute_rewards(batch_of(worker.tokenizer, asked["rows"])))
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        gone = type(error).__name__
    answer = {
        "rewards": given.batch["response_level_rewards"].tolist(),
        "scores": given.batch["scores"].tolist(),
        "tokens": bool(torch.any(given.batch["token_level_rewards"])),
        "gone": gone,
    }
    print("ANSWER" + json.dumps(answer))
    ray.shutdown()


if __name__ == "__main__":
    main()
