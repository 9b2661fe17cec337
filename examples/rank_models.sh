#!/bin/sh
# Rank four models without false order, as a table and as a page: sh examples/rank_models.sh
set -e
mkdir -p out
python - <<'PYTHON'
import json
from pathlib import Path

rows = [
    {"dataset": "next", "problem_id": str(n), "prompt": "Add 1.", "ground_truth": {"inputs": [f"{n}\n"], "outputs": [f"{n + 1}\n"]}}
    for n in range(60)
]
Path("out/next.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
for model, solved in (("ash", 20), ("birch", 52), ("cedar", 50), ("dogwood", 5)):
    programs = ["print(int(input()) + 1)" if n * 37 % 60 < solved else "print(-1)" for n in range(60)]
    answers = [{"problem_id": str(n), "response": program} for n, program in enumerate(programs)]
    Path(f"out/{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
PYTHON
for model in ash birch cedar dogwood; do
  evalrun judge --problems out/next.jsonl --responses out/$model.jsonl --output out/models/$model --model $model --quiet
done
evalrun leaderboard out/models
evalrun leaderboard out/models --output out/leaderboard.html
