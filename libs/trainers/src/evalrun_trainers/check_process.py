"""`python -m evalrun_trainers.check_process TRAINER WAY URL ROWS FD`: what `evalrun reward-check` starts.

TRAINER is a key of WAYS, WAY one of its ways, and ROWS a file of JSON, [{"data_source", "solution", "ground_truth"}].
For each line of stdin all rows are asked for once, and a line of JSON goes to the descriptor FD: {"rewards": [number or
null], "errors": {type: count}, "seconds": ..., "version": ...}, where null is a reward that the trainer did not get; or
{"missing": MODULE}, and the process ends. When stdin closes, this process ends at once, with all processes that it
started.
"""

import asyncio
import json
import math
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from evalrun_trainers.client import RewardClient, RewardError, choose_reward
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_sample

OWN = "own"
"""The trainer's own client of SandboxFusion; `url` is such a server's."""
EVALRUN = "evalrun"
"""The reward service, whose address is `url`."""

Row = Mapping[str, Any]
Reward = Any
"""A number, or the exception in its place."""
Way = Callable[[str, Sequence[Row]], Sequence[Reward]]


def fetch_client_rewards(url: str, rows: Sequence[Row]) -> Sequence[Reward]:
    """Return the rewards that this package's client gets, without a trainer."""
    options = Options(url=url)
    samples = [make_sample(row["data_source"], row["solution"], row["ground_truth"]) for row in rows]
    rewards: list[Reward] = []
    for result in RewardClient(options).results(samples):
        try:
            rewards.append(choose_reward(result, options))
        except RewardError as error:
            rewards.append(error)
    return rewards


def fetch_own_verl_rewards(url: str, rows: Sequence[Row]) -> Sequence[Reward]:
    """Return the rewards of verl's default manager and scorer from SandboxFusion."""
    return _fetch_verl_rewards(
        {"sandbox_fusion": {"url": f"{url}/run_code", "max_concurrent": 64, "memory_limit_mb": 1024}}, rows
    )


def fetch_verl_rewards(url: str, rows: Sequence[Row]) -> Sequence[Reward]:
    """Return verl's rewards from our reward manager."""
    return _fetch_verl_rewards(our_verl_settings(url), rows)


def our_verl_settings(url: str) -> Mapping[str, Any]:
    """Return the settings with which verl loads our reward manager."""
    manager = {
        "source": "importlib",
        "name": "EvalrunRewardManager",
        "module": {"path": "pkg://evalrun_trainers.verl_manager", "name": "custom_reward_manager"},
    }
    return {"reward_manager": manager, "reward_kwargs": {"url": url}}


def verl_config(reward: Mapping[str, Any]) -> Any:  # noqa: ANN401 - OmegaConf's
    """Return verl's configuration, in which these settings of `reward` replace the defaults."""
    from omegaconf import OmegaConf

    default = {
        "custom_reward_function": {"path": None, "name": "compute_score"},
        "reward_manager": {"source": "register", "name": "naive", "module": {"path": None, "name": None}},
        "sandbox_fusion": {"url": None, "max_concurrent": 64, "memory_limit_mb": 1024},
    }
    return OmegaConf.create({"reward": {**default, **reward}})


def verl_manager(reward: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a manager of verl's
    """Return the reward manager that verl loads for these settings."""
    from verl.trainer.ppo.reward import load_reward_manager

    return load_reward_manager(verl_config(reward), _Characters())


def _fetch_verl_rewards(reward: Mapping[str, Any], rows: Sequence[Row]) -> Sequence[Reward]:
    import torch

    manager = verl_manager(reward)

    async def score(row: Row) -> float:
        given = await manager.run_single(_verl_batch(torch, row))
        return float(given["reward_score"])

    async def score_all() -> Sequence[Reward]:
        return await asyncio.gather(*(score(row) for row in rows), return_exceptions=True)

    rewards: Sequence[Reward] = manager.loop.run_until_complete(score_all())
    return rewards


class _Characters:
    """A tokenizer with a token per character; 0 ends."""

    eos_token_id = 0

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:  # noqa: ANN401 - a tensor
        return "".join(chr(int(number)) for number in ids if int(number) or not skip_special_tokens)


def _verl_batch(torch: Any, row: Row) -> Any:  # noqa: ANN401 - verl's DataProto
    """Return a row as verl's batch of one sample: a prompt of one token, then the completion."""
    import numpy as np
    from verl import DataProto

    ids = torch.tensor([[*map(ord, row["solution"]), 0]], dtype=torch.long)

    def one(value: Any) -> Any:  # noqa: ANN401 - numpy's array
        array = np.empty(1, dtype=object)
        array[0] = value
        return array

    return DataProto.from_dict(
        tensors={
            "prompts": torch.ones(1, 1, dtype=torch.long),
            "responses": ids,
            "attention_mask": torch.ones(1, 1 + ids.shape[-1], dtype=torch.long),
        },
        non_tensors={
            "data_source": one(row["data_source"]),
            "reward_model": one({"ground_truth": row["ground_truth"]}),
            "extra_info": one({}),
        },
    )


def fetch_openrlhf_rewards(url: str, rows: Sequence[Row]) -> Sequence[Reward]:
    """Return the rewards that OpenRLHF's client of remote reward models receives."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(f"{url}/get_reward?run=reward-check")

    async def score(row: Row) -> float:
        prompt = "p"
        answers = await executor._fetch_rewards_via_http([prompt + row["solution"]], [prompt], [row["ground_truth"]])
        return float(answers[0]["rewards"][0])

    async def score_all() -> Sequence[Reward]:
        return await asyncio.gather(*(score(row) for row in rows), return_exceptions=True)

    return asyncio.run(score_all())


def fetch_trl_rewards(url: str, rows: Sequence[Row]) -> Sequence[Reward]:
    """Return the rewards that TRL's GRPOTrainer gets from our reward function: NaN where there is no reward."""
    from evalrun_trainers.trl_reward import code_reward

    trainer = _grpo_trainer(code_reward)
    if not rows:
        return []
    # TRL's trainer hands no options to a reward function.
    os.environ.update(EVALRUN_REWARD_URL=url, EVALRUN_REWARD_ON_NOT_JUDGED="nan", EVALRUN_REWARD_ON_INVALID="nan")
    completions, ids = [row["solution"] for row in rows], [[1]] * len(rows)
    inputs = [{"prompt": "p", **row} for row in rows]
    rewards: Sequence[Reward] = trainer._calculate_rewards(inputs, ["p"] * len(rows), completions, ids)[:, 0].tolist()
    return rewards


@cache
def _grpo_trainer(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - TRL has no types
    """Return a trainer of a tiny model, because only its rewards are used."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    config = GPT2Config(vocab_size=2, n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    words = Tokenizer(models.WordLevel({"<eos>": 0, "p": 1}, unk_token="<eos>"))  # noqa: S106 - no password
    with tempfile.TemporaryDirectory(prefix="evalrun-reward-check-") as directory:
        return GRPOTrainer(
            model=GPT2LMHeadModel(config),
            reward_funcs=[function],
            args=GRPOConfig(output_dir=directory, use_cpu=True, report_to=[], bf16=False, num_generations=2),
            train_dataset=Dataset.from_list([{"prompt": "p"}]),
            processing_class=PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>"),  # noqa: S106
        )


WAYS: Mapping[str, Mapping[str, Way]] = {
    "none": {EVALRUN: fetch_client_rewards},
    "openrlhf": {EVALRUN: fetch_openrlhf_rewards},
    "trl": {EVALRUN: fetch_trl_rewards},
    "verl": {OWN: fetch_own_verl_rewards, EVALRUN: fetch_verl_rewards},
}
"""By trainer. OpenRLHF has no client of a sandbox: its only way is a remote reward model. Nor has TRL, whose reward
functions are the user's."""


def main(arguments: Sequence[str]) -> None:
    """Ask for all rewards once per line of stdin."""
    trainer, way, url, rows_path, descriptor = arguments
    lines: queue.SimpleQueue[None] = queue.SimpleQueue()
    threading.Thread(target=_watch_stdin, args=(lines,), daemon=True).start()
    rows = json.loads(Path(rows_path).read_text())
    with open(int(descriptor), "w", buffering=1) as results:  # noqa: PTH123 - a descriptor has no path
        try:
            # This call imports the trainer, so that no measured pass includes the import.
            WAYS[trainer][way](url, [])
        except ModuleNotFoundError as error:
            results.write(json.dumps({"missing": error.name}) + "\n")
            return
        while True:
            lines.get()
            results.write(json.dumps(_ask(trainer, way, url, rows)) + "\n")


def _watch_stdin(lines: "queue.SimpleQueue[None]") -> None:
    """Pass on each line of stdin. Kill this process at the end of stdin, and its process group if it is the leader.

    The command that started this process may be killed in the middle of a pass, and can then stop nothing itself. Its
    end of the pipe is closed by the kernel.
    """
    # Not sys.stdin: an interpreter that ends while another thread reads from that is aborted.
    while read := os.read(0, 4096):
        for _ in range(read.count(b"\n")):
            lines.put(None)
    os.kill(0 if os.getpgrp() == os.getpid() else os.getpid(), signal.SIGKILL)


def _ask(trainer: str, way: str, url: str, rows: Sequence[Row]) -> dict[str, Any]:
    before = time.monotonic()
    rewards = WAYS[trainer][way](url, rows)
    return {
        "rewards": [plain_reward(reward) for reward in rewards],
        "errors": Counter(type(reward).__name__ for reward in rewards if isinstance(reward, BaseException)),
        "seconds": time.monotonic() - before,
        "version": "" if trainer == "none" else metadata.version(trainer),
    }


def plain_reward(reward: Reward) -> float | None:
    """Return a number, or None where there is no reward."""
    if isinstance(reward, BaseException) or not math.isfinite(reward):
        return None
    return float(reward)


if __name__ == "__main__":
    main(sys.argv[1:])
