"""Let a new model ship only if it lost no more than ten points: python examples/decide_a_gate.py

Ends with the exit code of `evalrun gate`: 0 passed, 4 failed, 5 too few problems to tell.
"""

import sys

import evalrun

RIGHT, WRONG = "print(int(input()) ** 2)", "print(int(input()) * 2)"
problems = [
    {"dataset": "squares", "problem_id": str(n), "prompt": "Square it.", "role": "dev",
     "ground_truth": {"inputs": [f"{n}\n"], "outputs": [f"{n * n}\n"]}}
    for n in range(3, 103)
]  # fmt: skip


def judge(name, solved):
    answers = [
        {"problem_id": each["problem_id"], "response": RIGHT if place < solved else WRONG}
        for place, each in enumerate(problems)
    ]
    return evalrun.judge(problems, answers, output=f"out/{name}", model=name, progress=False)


main, candidate = judge("main", 90), judge("candidate", 60)
gates = evalrun.gate(
    candidate, [{"baseline": main, "dataset": "squares", "metric": "accepted_at_1", "maxRegression": "0.1"}]
)
for each in gates.results:
    print(f"{each.decision}: {each.message}")
sys.exit(gates.exit_code)
