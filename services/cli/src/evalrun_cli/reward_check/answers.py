"""The completions of a check, each with the reward that it deserves. Pure."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

DATA_SOURCE = "codecontests"
"""verl sends rows of this source to SandboxFusion."""
SEED = 49
TESTS = 4
MAX_NUMBER = 10**6

TASKS: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("n * n", lambda n: n * n),
    ("n * (n + 1) // 2", lambda n: n * (n + 1) // 2),
    ("sum(map(int, str(n)))", lambda n: sum(map(int, str(n)))),
    ("int(str(n)[::-1])", lambda n: int(str(n)[::-1])),
    ("bin(n).count('1')", lambda n: n.bit_count()),
)
"""An expression of a number n, and the same as a function."""
FAULTS = ("-1", "1 // 0", "''")
"""Outputs of a wrong program: another number, nothing since it raises, an empty line."""
MODULI = (0, 1, 2, 2, 3)
"""A program is wrong for multiples of this number; 0: never."""


@dataclass(frozen=True)
class Answer:
    """A model's completion with its tests, and the share of them that it passes."""

    solution: str
    ground_truth: str
    reward: float

    def row(self) -> dict[str, str]:
        """Return the completion as a trainer's row, without the reward."""
        return {"data_source": DATA_SOURCE, "solution": self.solution, "ground_truth": self.ground_truth}


def make_answers(number: int) -> list[Answer]:
    """Return this many different completions, the same every time."""
    chance = random.Random(SEED)  # noqa: S311 - not a secret
    return [_make_answer(index, chance) for index in range(number)]


def _make_answer(index: int, chance: random.Random) -> Answer:
    expression, solve = chance.choice(TASKS)
    modulus, fault = chance.choice(MODULI), chance.choice(FAULTS)
    numbers = [chance.randint(1, MAX_NUMBER) for _ in range(TESTS)]
    said = f"{fault} if n % {modulus} == 0 else {expression}" if modulus else expression
    passed = sum(1 for n in numbers if not modulus or n % modulus)
    return Answer(
        solution=f"Answer {index}:\n```python\nn = int(input())\nprint({said})\n```\n",
        ground_truth=json.dumps({"inputs": [f"{n}\n" for n in numbers], "outputs": [f"{solve(n)}\n" for n in numbers]}),
        reward=passed / TESTS,
    )
