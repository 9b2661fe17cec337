"""Runs inside the environment of the published verl: loads our function and our manager as verl does, and verl's own.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.reward import get_custom_reward_fn, load_reward_manager
from verl.utils.reward_score import default_compute_score, sandbox_fusion


class Tokenizer:
    """A token a character; 0 ends."""

    eos_token_id = 0

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        return "".join(chr(int(number)) for number in ids if int(number) or not skip_special_tokens)


def config(asked: dict[str, Any], **reward: Any) -> Any:
    base: dict[str, Any] = {
        "custom_reward_function": {"path": None, "name": "compute_score"},
        "reward_manager": {"source": "register", "name": "naive", "module": {"path": None, "name": None}},
        "sandbox_fusion": {"url": None, "max_concurrent": 64, "memory_limit_mb": 1024},
    }
    return OmegaConf.create({"reward": {**base, **reward}})


def proto(rows: list[dict[str, Any]]) -> DataProto:
    width = max(len(row["solution"]) for row in rows) + 1
    responses = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width + 1, dtype=torch.long)
    mask[:, 0] = 1
    for index, row in enumerate(rows):
        ids = [ord(character) for character in row["solution"]] + [0]
        responses[index, : len(ids)] = torch.tensor(ids)
        mask[index, 1 : len(ids) + 1] = 1

    def objects(values: list[Any]) -> Any:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    return DataProto.from_dict(
        tensors={"prompts": torch.ones(len(rows), 1, dtype=torch.long), "responses": responses, "attention_mask": mask},
        non_tensors={
            "data_source": objects([row["data_source"] for row in rows]),
            "reward_model": objects([{"ground_truth": row["ground_truth"]} for row in rows]),
            "extra_info": objects([{"index": index} for index in range(len(rows))]),
        },
    )


def run_all(manager: Any, data: DataProto) -> list[dict[str, Any]]:
    async def every() -> list[Any]:
        return list(await asyncio.gather(*(manager.run_single(data[i : i + 1]) for i in range(len(data)))))

    results: list[dict[str, Any]] = manager.loop.run_until_complete(every())
    return results


def main() -> None:
    asked = json.load(sys.stdin)
    rows, answer = asked["rows"], {}
    kwargs = {"url": asked["url"]}
    data = proto(rows)

    def function(name: str) -> dict[str, Any]:
        return {"path": "pkg://evalrun_trainers.verl_reward", "name": name, "reward_kwargs": kwargs}

    for name in ("compute_score", "compute_score_async"):
        loaded = config(asked, custom_reward_function=function(name))
        manager = load_reward_manager(loaded, Tokenizer())
        assert isinstance(manager, NaiveRewardManager), type(manager)
        answer[name] = [one["reward_score"] for one in run_all(manager, data)]
    only = get_custom_reward_fn(config(asked, custom_reward_function=function("compute_score_only")))
    answer["main_eval"] = [only(row["data_source"], row["solution"], row["ground_truth"]) for row in rows]
    ours = {
        "source": "importlib",
        "name": "EvalrunRewardManager",
        "module": {"path": "pkg://evalrun_trainers.verl_manager", "name": "custom_reward_manager"},
    }
    manager = load_reward_manager(config(asked, reward_manager=ours, reward_kwargs=kwargs), Tokenizer())
    results = run_all(manager, data)
    answer["manager"] = [one["reward_score"] for one in results]
    infos = [one["reward_extra_info"] for one in results]
    answer["extra"] = infos
    # What verl's trainer does with them: an array a key, and means over the batch.
    arrays = {key: np.array([info[key] for info in infos]) for key in infos[0]}
    means = process_validation_metrics(
        [row["data_source"] for row in rows], ["u"] * len(rows), {key: array.tolist() for key, array in arrays.items()}
    )
    answer["logged"] = sorted({key for of_source in means.values() for key in of_source})
    answer["verl"] = [
        default_compute_score(
            row["data_source"], row["solution"], row["ground_truth"], sandbox_fusion_url=f"{asked['fusion']}/run_code"
        )
        for row in rows
    ]
    if slow := asked.get("slow"):
        truth, solution = slow["ground_truth"], slow["solution"]
        score, _ = sandbox_fusion.compute_score(f"{asked['fusion']}/run_code", None, 1024, solution, truth, timeout=1)
        answer["verl_slow"] = score
        answer["ours_slow"] = only("codecontests", solution, truth)
    print("ANSWER" + json.dumps(answer))


if __name__ == "__main__":
    main()
