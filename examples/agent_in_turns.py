"""An agent that runs its programs, sees what they do, and is rewarded for the last: python examples/agent_in_turns.py

The agent is a function of this file; a model would be asked in its place, with the observations so far. `RewardCalls`
asks again where the service gives no answer, so an outage is never a reward. It needs: pip install ./libs/trainers
"""

import asyncio

from reward_service import start_reward_service

from evalrun_trainers.calls import RewardCalls
from evalrun_trainers.options import Options

PROBLEM = "Read the numbers of a line and print their mean, with one digit after the point."
TESTS = {
    "inputs": ["1 2\n", "5 7 9\n", "4\n"],
    "outputs": ["1.5\n", "7.0\n", "4.0\n"],
    "groups": ["public", "private", "private"],
}


def act(problem, observations):
    """Return the next message of the agent; None once it is satisfied."""
    if not observations:
        return "```python\nnumbers = input()\nprint(sum(numbers) / len(numbers))\n```"
    if "TypeError" in observations[-1]:
        program = "numbers = [*map(int, input().split())]\nprint(sum(numbers) / len(numbers))"
        return f"They are text.\n```python\n{program}\n```"
    return None


async def play(url):
    calls = RewardCalls(Options(url=url, run="agents"))
    session = await calls.post("/start_instance", {"instance_hash": "mean", "ground_truth": TESTS})
    observations = []
    while (message := act(PROBLEM, observations)) is not None:
        action = {"sid": session["sid"], "turn": len(observations), "content": message}
        observations.append((await calls.post("/process_action", action))["content"])
        print(f"turn {len(observations)}:", *observations[-1].splitlines()[-2:])
    answer = await calls.post("/compute_reward", {"sid": session["sid"]})
    print(f"reward {answer['reward']}: {answer['f2p_count']} of {answer['f2p_total']} tests")
    calls.close()


with start_reward_service() as url:
    asyncio.run(play(url))
