"""Ask for the rewards of two answers, as a trainer does after each step: python examples/ask_for_rewards.py"""

import json
import subprocess
import urllib.request

service = subprocess.Popen(["evalrun", "serve", "reward", "--port", "0"], stdout=subprocess.PIPE, text=True)
try:
    address = next(line.split()[-1] for line in service.stdout if " ready on " in line)
    url = address if "://" in address else f"http://{address}"
    tests = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
    samples = [
        {"id": "right", "response": "```python\nprint(input())\n```", "ground_truth": tests},
        {"id": "half", "response": "```python\nprint(1)\n```", "ground_truth": tests},
    ]
    body = json.dumps({"run": "grpo", "samples": samples}).encode()
    request = urllib.request.Request(f"{url}/v1/rewards", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        results = json.load(answer)["results"]
    for each in results:
        print(each["id"], each["outcome"], each["reward"])
finally:
    service.terminate()
    service.wait()
