#!/bin/sh
# Find the best of three checkpoints, and stop looking at the others as soon as they are behind: sh examples/pick_checkpoint.sh
set -e
mkdir -p out
python - <<'PYTHON'
import json
from pathlib import Path

tests = [{"inputs": [f"{n}\n"], "outputs": [f"{n + 1}\n"]} for n in range(60)]
rows = [{"dataset": "next", "problem_id": str(n), "prompt": "Add 1.", "ground_truth": each} for n, each in enumerate(tests)]
Path("out/next.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
for step, solved in ((100, 20), (200, 55), (300, 35)):
    programs = ["print(int(input()) + 1)" if n * 37 % 60 < solved else "print(-1)" for n in range(60)]
    answers = [{"problem_id": str(n), "response": program} for n, program in enumerate(programs)]
    Path(f"out/step-{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
PYTHON
for step in 100 200 300; do
  evalrun judge --problems out/next.jsonl --responses out/step-$step.jsonl --output out/step-$step --quiet
done
evalrun race out/step-100 out/step-200 out/step-300
