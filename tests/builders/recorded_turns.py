"""Problems with recorded answers of several turns, and the figures of EVAL@turns over them, computed by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

RIGHT: Final = "print(sum(map(int, input().split())))"
WRONG: Final = "a, b = map(int, input().split())\nprint(a - b)"
CRASH: Final = "print(1 // 0)"
PUBLIC_ONLY: Final = "print(3)"
"""Right for the public test alone."""

ANSWERS: Final = {
    "at-once": [RIGHT],
    "second": [WRONG, RIGHT],
    "third": [CRASH, PUBLIC_ONLY, RIGHT],
    "never": [PUBLIC_ONLY, WRONG, CRASH],
    "worse": [WRONG, CRASH, PUBLIC_ONLY],
}
"""Programs of each turn, by problem."""
ROWS: Final = [(name, turn) for name, turns in ANSWERS.items() for turn in range(len(turns))]
"""Problem and turn of every answer that a run of three turns asks for."""
BY_HAND: Final = {
    "accepted_at_1": 1 / 5,
    "accepted_by_turn_2": 2 / 5,
    "accepted_by_turn_3": 3 / 5,
    "recovery_rate_by_turn_2": 1 / 4,  # four failed at first; "second" recovered
    "recovery_rate": 2 / 4,  # and "third"
    "turns_to_accept": (1 + 2 + 3) / 3,
    "zero_reward_rate_by_turn_1": 3 / 5,  # "never" passed its public test
    "zero_reward_rate_by_turn_2": 2 / 5,  # "never" and "worse"
    "zero_reward_rate_by_turn_3": 1 / 5,  # "never": "worse" ends with the public test passed
}
HIDDEN: Final = ["70001", "80002", "150003"]
"""Numbers of the private test, which stand in no request."""
DATASET: Final = "sums"
PROTOCOL: Final = {"name": "EVAL@turns", "turns": {"limit": 3}}


def write_recorded_turns(directory: Path) -> tuple[Path, Path]:
    """Write the problems and the recorded answers; gives both files."""
    truth = {"inputs": ["1 2\n", "70001 80002\n"], "outputs": ["3\n", "150003\n"], "groups": ["public", "private"]}
    problems = [
        {"dataset": DATASET, "split": "test", "problem_id": name, "prompt": f"Add two numbers ({name}).",
         "ground_truth": truth, "limits": {"time_seconds": 2}}
        for name in ANSWERS
    ]  # fmt: skip
    answers = [
        {"dataset": DATASET, "problem_id": name, "sample": 0, "turn": turn, "response": f"```python\n{code}\n```"}
        for name, turns in ANSWERS.items()
        for turn, code in enumerate(turns)
    ]
    return _write(directory / "turn-problems.jsonl", problems), _write(directory / "turn-answers.jsonl", answers)


def write_turns_run(directory: Path, problems: Path) -> Path:
    """Write the EvalRun of three turns over the problems, which lie in the same directory; gives its file."""
    run = {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalRun",
        "metadata": {"name": "turns"},
        "spec": {
            "model": {"path": "recorded"},
            "datasets": [{"name": DATASET, "source": problems.name}],
            "protocol": PROTOCOL,
            "endpoints": [{"url": "http://127.0.0.1:1/v1"}],
        },
    }
    (directory / "run.yaml").write_text(json.dumps(run))
    return directory / "run.yaml"


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
