"""Train with TRL on the judge's rewards: python examples/rewards_in_trl.py [MODEL]

Without MODEL this calls the reward function alone, as GRPOTrainer does: do the data and the service fit? With a model's
directory or name it makes two steps of GRPO, for which `trl` must be installed; --cpu does without a GPU. Both need:
pip install ./libs/trainers
"""

import json
import os
import sys

from reward_service import start_reward_service

from evalrun_trainers.trl_reward import code_reward

tests = json.dumps({"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]})
rows = [{"prompt": "# Print the sum of the numbers of a line.\n", "ground_truth": tests}] * 4


def check_rewards():
    completions = ["print(sum(map(int, input().split())))", "print(3)", "print(", "no program"]
    rewards = code_reward([row["prompt"] for row in rows], completions, ground_truth=[tests] * len(rows))
    for completion, reward in zip(completions, rewards, strict=True):
        print(f"{reward} for {completion}")


def train(model):
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir="out/trl", max_steps=2, num_generations=2, per_device_train_batch_size=2, max_completion_length=32,
        logging_steps=1, save_strategy="no", report_to=[], use_cpu="--cpu" in sys.argv, bf16="--cpu" not in sys.argv,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[code_reward],
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
    trainer.train()
    for step in trainer.state.log_history:
        if "reward" in step:
            print(f"step {step['step']}: mean reward {step['reward']}, not judged {step['evalrun/not_judged']}")


with start_reward_service() as url:
    os.environ |= {"EVALRUN_REWARD_URL": url, "EVALRUN_REWARD_RUN": "grpo"}
    models = [argument for argument in sys.argv[1:] if argument != "--cpu"]
    if models:
        train(models[0])
    else:
        check_rewards()
