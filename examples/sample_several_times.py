"""Judge ten answers to each problem, for pass@1 and pass@10: python examples/sample_several_times.py"""

import evalrun

tests = {"inputs": ["3\n", "10\n"], "outputs": ["6\n", "55\n"]}
problems = [
    {"dataset": "triangle", "problem_id": name, "prompt": "Sum 1..n.", "ground_truth": tests} for name in ("a", "b")
]
RIGHT, WRONG = "n = int(input())\nprint(n * (n + 1) // 2)", "print(6)"
answers = [
    {"problem_id": name, "sample": sample, "response": RIGHT if sample < solved else WRONG}
    for name, solved in (("a", 1), ("b", 7))
    for sample in range(10)
]

run = evalrun.judge(problems, answers, output="out/several", progress=False)
for metric in ("accepted_at_1", "pass_at_10"):
    print(f"{metric}: {run.metric('triangle', metric):.3f}")
