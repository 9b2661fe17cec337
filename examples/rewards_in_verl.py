"""Get verl's rewards from the judge, before a training is started: python examples/rewards_in_verl.py

verl calls `compute_score` of `evalrun_trainers.verl_reward` with the row's fields and the answer, as this program does.
The package has no dependencies: pip install ./libs/trainers
"""

import json

from reward_service import start_reward_service

from evalrun_trainers.verl_reward import compute_score

tests = {"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]}
row = {
    "data_source": "sums",
    "prompt": [{"role": "user", "content": "Add the numbers of a line."}],
    "reward_model": {"style": "rule", "ground_truth": json.dumps(tests)},
    "extra_info": {"index": 0},
}
answers = {
    "right": "```python\nprint(sum(map(int, input().split())))\n```",
    "half right": "```python\nprint(3)\n```",
    "no program": "The sum is 3.",
}
with start_reward_service() as url:
    for name, answer in answers.items():
        truth = row["reward_model"]["ground_truth"]
        given = compute_score(row["data_source"], answer, truth, row["extra_info"], url=url, run="grpo")
        print(f"{name}: score {given['score']}, judged {given['judged']}, {given['final_status']}")

print(f"""
In verl's command, beside a service that keeps running (evalrun serve reward --port 8090):
  reward.custom_reward_function.path=pkg://{compute_score.__module__}
  reward.custom_reward_function.name=compute_score_async
  +reward.custom_reward_function.reward_kwargs.url=http://127.0.0.1:8090""")
