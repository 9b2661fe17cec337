"""Judge answers to two problems of your own, and say why one failed: python examples/judge_own_answers.py"""

import evalrun

tests = {"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]}
problems = [
    {"dataset": "sums", "problem_id": name, "prompt": "Add two numbers.", "ground_truth": tests} for name in ("a", "b")
]
answers = [
    {"problem_id": "a", "response": "```python\nprint(sum(map(int, input().split())))\n```"},
    {"problem_id": "b", "response": "```python\nprint(3)\n```"},
]

run = evalrun.judge(problems, answers, output="out/own-answers", progress=False)
print(f"pass@1 of {run.metric('sums'):.0%}")
for verdict in run.failed():
    test = next(test for test in verdict.tests if not test.passed)
    print(f"{verdict.problem_id}: expected {test.expected_output!r}, printed {test.stdout!r}")
