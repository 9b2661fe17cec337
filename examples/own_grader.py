"""Score answers by a function of your own, in the sandbox: python examples/own_grader.py"""

from pathlib import Path

import evalrun

Path("out").mkdir(exist_ok=True)
grader = Path("out/words.py")
grader.write_text("""\
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    wanted = set(ground_truth.split())
    return len(wanted & set(solution_str.lower().split())) / len(wanted)
""")
problems = [
    {"dataset": "words", "problem_id": name, "prompt": "Name two colours of the flag.", "ground_truth": "red white"}
    for name in ("a", "b")
]
answers = [
    {"problem_id": "a", "response": "They are red and white"},
    {"problem_id": "b", "response": "It is red and blue"},
]

run = evalrun.judge(problems, answers, output="out/own-grader", grader=grader, progress=False)
print(f"mean score {run.metric('words', 'score_mean'):.2f}")
