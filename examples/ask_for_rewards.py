"""Ask for the rewards of two answers, as a trainer does after each step: python examples/ask_for_rewards.py"""

import json
import urllib.request

from reward_service import start_reward_service

tests = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
samples = [
    {"id": "right", "response": "```python\nprint(input())\n```", "ground_truth": tests},
    {"id": "half", "response": "```python\nprint(1)\n```", "ground_truth": tests},
]
with start_reward_service() as url:
    body = json.dumps({"run": "grpo", "samples": samples}).encode()
    request = urllib.request.Request(f"{url}/v1/rewards", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        results = json.load(answer)["results"]
for each in results:
    print(each["id"], each["outcome"], each["reward"])
