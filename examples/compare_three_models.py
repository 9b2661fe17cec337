"""Compare three models, corrected for three tests: python examples/compare_three_models.py"""

import evalrun

RIGHT, WRONG = "print(int(input()) ** 2)", "print(int(input()) * 2)"
problems = [
    {"dataset": "squares", "problem_id": str(n), "prompt": "Square it.",
     "ground_truth": {"inputs": [f"{n}\n"], "outputs": [f"{n * n}\n"]}}
    for n in range(3, 63)
]  # fmt: skip


def judge(name, solved):
    answers = [
        {"problem_id": each["problem_id"], "response": RIGHT if place < solved else WRONG}
        for place, each in enumerate(problems)
    ]
    return evalrun.judge(problems, answers, output=f"out/{name}", model=name, progress=False)


found = evalrun.compare(judge("small", 20), judge("medium", 45), judge("large", 48), all_pairs=True)
for each in found.datasets[0].contrasts:
    change = each.differences["accepted_at_1"].difference
    told = "differs" if each.adjusted_p < 0.05 else "cannot be told apart"
    print(f"{each.second} - {each.first}: {100 * change:+.0f} points, {told}")
