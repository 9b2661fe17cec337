"""Accept every right output of a problem that has many, by a comparator of your own: python examples/own_comparator.py

The comparator is a program, here by Kattis' protocol: it is called with the files of the input and the expected output,
reads from stdin what the candidate printed, and exits with 42 (accepted) or 43 (wrong). It runs in a sandbox too.
"""

import evalrun

CHECKER = """\
import sys
from pathlib import Path

wanted = int(Path(sys.argv[1]).read_text())
words = sys.stdin.read().split()
is_pair = len(words) == 2 and all(word.isdecimal() and len(word) < 20 for word in words)
sys.exit(42 if is_pair and sum(map(int, words)) == wanted else 43)
"""
comparator = {"name": "checker", "protocol": "kattis", "language": "python", "source": CHECKER}
problems = [
    {
        "dataset": "pairs",
        "problem_id": name,
        "prompt": "Print two numbers whose sum is the input.",
        "ground_truth": {"inputs": ["10\n", "7\n"], "outputs": ["5 5\n", "3 4\n"]},
        "comparator": comparator,
    }
    for name in ("other pair", "wrong sum")
]
answers = [
    {"problem_id": "other pair", "response": "```python\nprint(1, int(input()) - 1)\n```"},
    {"problem_id": "wrong sum", "response": "```python\nprint(1, int(input()))\n```"},
]

run = evalrun.judge(problems, answers, output="out/own-comparator", progress=False)
for verdict in run.verdicts():
    print(f"{verdict.problem_id}: {'accepted' if verdict.accepted else 'rejected'}")
