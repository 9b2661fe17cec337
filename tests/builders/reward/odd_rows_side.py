"""Runs inside an environment with a published trainer: asks for the rewards of exact rows, with odd ones among them.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import json
import sys

from builders.reward.odd_rows import TRUTHS, UNWRITABLE_TRUTHS, mixed, odd_rows

from evalrun_trainers.check_process import EVALRUN, WAYS, plain_reward


def main() -> None:
    asked = json.load(sys.stdin)
    exact = asked["rows"]
    # A trainer's answers are decoded tokens, so that only its dataset can be odd.
    odd = odd_rows([*TRUTHS.values(), *UNWRITABLE_TRUTHS.values()], [], exact[0]["ground_truth"])
    rewards = WAYS[asked["trainer"]][EVALRUN](asked["url"], mixed(exact, odd))
    print("ANSWER" + json.dumps([plain_reward(reward) for reward in rewards]))


if __name__ == "__main__":
    main()
