"""Runs inside the environment of the published verl: loads our function and our manager as verl does, and verl's own.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
import torch
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.reward_score import default_compute_score, sandbox_fusion

from evalrun_trainers.check_process import our_verl_settings, verl_config, verl_manager


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
        manager = verl_manager({"custom_reward_function": function(name)})
        assert isinstance(manager, NaiveRewardManager), type(manager)
        answer[name] = [one["reward_score"] for one in run_all(manager, data)]
    only = get_custom_reward_fn(verl_config({"custom_reward_function": function("compute_score_only")}))
    answer["main_eval"] = [only(row["data_source"], row["solution"], row["ground_truth"]) for row in rows]
    manager = verl_manager(our_verl_settings(asked["url"]))
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
