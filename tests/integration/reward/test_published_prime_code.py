"""verl 0.9.1's own scorer of code without a sandbox, prime_code: equal rewards, each difference explained."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from builders.other_interpreter import ask_script
from builders.reward.stack import reward_stack
from builders.verl_scorers import copy_scorers

pytestmark = pytest.mark.timeout(900)
"""verl's scorer starts two processes for each answer, and for each of the tests of one that fails."""

SOURCES = ("codecontests", "apps", "codeforces", "taco")
ONE = {"inputs": ["3\n"], "outputs": ["9\n"]}
PAIRS = {"inputs": ["1\n", "2\n", "3\n"], "outputs": ["1\n", "4\n", "9\n"]}
CALLS = {"fn_name": "f", "inputs": ["1", "3"], "outputs": ["1", "9"]}
TWO = {"fn_name": "f", "inputs": ["[1, 2]\n3"], "outputs": ["[3, 1, 2]"]}
TWELVE = {"inputs": [f"{n}\n" for n in range(12)], "outputs": [f"{n * n}\n" for n in range(12)]}
SQUARE = "print(int(input()) ** 2)"


def fenced(code: str) -> str:
    return f"Here:\n```python\n{code}\n```\n"


def prints(code: str, expected: str) -> tuple[dict[str, Any], str]:
    return {"inputs": ["9\n"], "outputs": [expected]}, fenced(code)


SAME: dict[str, tuple[dict[str, Any], str, float]] = {
    "right": (PAIRS, fenced(SQUARE), 1.0),
    "wrong": (ONE, fenced("print(0)"), 0.0),
    "two of three": (PAIRS, fenced("n = int(input()); print(n * n if n < 3 else 0)"), 2 / 3),
    "raises on one": (PAIRS, fenced("n = int(input()); print(n * n // (n != 2))"), 2 / 3),
    "does not compile": (ONE, fenced("print("), 0.0),
    "an early block and a late one": (ONE, fenced("print(0)") + fenced(SQUARE), 1.0),
    "no block, but a program": (ONE, SQUARE, 1.0),
    "a fence that never ends": (ONE, f"```python\n{SQUARE}", 1.0),
    "nothing": (ONE, "", 0.0),
    "another language": (ONE, "```cpp\nint main() {}\n```", 0.0),
    "the main guard": (ONE, fenced(f"def main():\n    {SQUARE}\nif __name__ == '__main__':\n    main()"), 1.0),
    "ends itself without a code": (ONE, fenced(f"import sys\n{SQUARE}\nsys.exit()"), 1.0),
    "a blank at the line's end": (ONE, fenced("print(int(input()) ** 2, '')"), 1.0),
    "a blank at the line's begin": (ONE, fenced("print('', int(input()) ** 2)"), 1.0),
    "empty lines around": (ONE, fenced(f"print()\n{SQUARE}\nprint()"), 1.0),
    "an empty line between": (*prints("print(1)\nprint()\nprint(2)", "1\n2\n"), 1.0),
    "a fraction, nearly": (*prints("print('0.33333333')", "0.333333333\n"), 1.0),
    "a fraction with a zero more": (*prints("print('1.50')", "1.5\n"), 1.0),
    "another case of letters": (*prints("print('Yes')", "YES\n"), 0.0),
    "another order": (*prints("print(2)\nprint(1)", "1\n2\n"), 0.0),
    "a call": (CALLS, fenced("def f(x):\n    return x * x"), 1.0),
    "a call of a method": (CALLS, fenced("class Solution:\n    def f(self, x):\n        return x * x"), 1.0),
    "a call that needs no import": (CALLS, fenced("def f(x):\n    return x * isqrt(x * x)"), 1.0),
    "a call that prints too": (CALLS, fenced("def f(x):\n    print(x)\n    return x * x"), 1.0),
    "a call that gives fractions": (CALLS, fenced("def f(x):\n    return float(x * x)"), 1.0),
    "a call of another name": (CALLS, fenced("def g(x):\n    return x * x"), 0.0),
    "a call that raises": (CALLS, fenced("def f(x):\n    return 1 // 0"), 0.0),
    "a call with two arguments": (TWO, fenced("def f(a, b):\n    return [b] + a"), 1.0),
    "a call that gives a tuple for a list": (TWO, fenced("def f(a, b):\n    return (b, *a)"), 1.0),
    "a call that gives a set for a list": (TWO, fenced("def f(a, b):\n    return {b, *a}"), 0.0),
}
"""(tests, answer, the reward of both)."""
EQUAL_TO_ALL = "class Equal(int):\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return Equal(0)"
DIFFERENT: dict[str, tuple[dict[str, Any] | str, str, float, float | None]] = {
    "more than ten tests, the first ten pass": (
        TWELVE,
        fenced("n = int(input()); print(n * n if n < 10 else 0)"),
        1.0,
        10 / 12,
    ),
    "calls of which one fails": (CALLS, fenced("def f(x):\n    return x * x if x < 3 else 0"), 0.0, 1 / 2),
    "a call that gives what equals everything": (CALLS, fenced(EQUAL_TO_ALL), 1.0, 0.0),
    "a module that it does not import": (*prints("print(math.isqrt(int(input())))", "3\n"), 1.0, 0.0),
    "recursion below Python's limit": (
        *prints("def f(n):\n    return n and 1 + f(n - 1)\nprint(f(5000))", "5000\n"),
        1.0,
        0.0,
    ),
    "ends with code 1": (ONE, fenced(f"import sys\n{SQUARE}\nsys.exit(1)"), 1.0, 0.0),
    "ends by exit()": (ONE, fenced(f"{SQUARE}\nexit()"), 0.0, 1.0),
    "ends by os._exit(0)": (ONE, fenced("import os\nprint(int(input()) ** 2, flush=True)\nos._exit(0)"), 0.0, 1.0),
    "reads stdin's bytes": (ONE, fenced("import sys\nprint(int(sys.stdin.buffer.read()) ** 2)"), 0.0, 1.0),
    "opens stdin by its number": (ONE, fenced("print(int(open(0).read()) ** 2)"), 0.0, 1.0),
    "a global variable": (
        ONE,
        fenced("n = 0\ndef read():\n    global n\n    n = int(input())\nread()\nprint(n * n)"),
        0.0,
        1.0,
    ),
    "a block named py": (ONE, f"```py\n{SQUARE}\n```", 0.0, 1.0),
    "two blanks between words": (*prints("print('1  2')", "1 2\n"), 0.0, 1.0),
    "a whole number as a fraction": (*prints("print('1.0')", "1\n"), 1.0, 0.0),
    "asserts": ({"assert_case": ["assert f(3) == 9"]}, fenced("def f(x):\n    return x * x"), 0.0, 1.0),
    "no tests": ({"inputs": [], "outputs": []}, fenced(SQUARE), 1.0, None),
    "tests that are no JSON": ("{", fenced(SQUARE), 0.0, None),
}
"""(tests, answer, verl's reward, ours; None: no reward)."""


def make_row(source: str, truth: dict[str, Any] | str, answer: str) -> dict[str, str]:
    text = truth if isinstance(truth, str) else json.dumps(truth)
    return {"data_source": source, "answer": answer, "ground_truth": text}


async def ask_for_rewards(address: str, rows: list[dict[str, str]]) -> list[float | None]:
    samples = [
        {"data_source": row["data_source"], "response": row["answer"], "ground_truth": row["ground_truth"]}
        for row in rows
    ]
    async with ClientSession() as session, session.post(f"{address}/v1/rewards", json={"samples": samples}) as answer:
        return [result["reward"] for result in (await answer.json())["results"]]


async def test_rewards_of_code_sources_equal_prime_code_except_for_explained_differences(
    gen_cpu: Path, tmp_path: Path
) -> None:
    names = [*SAME, *DIFFERENT]
    cases = [*((truth, answer) for truth, answer, _ in SAME.values()), *(row[:2] for row in DIFFERENT.values())]
    rows = [make_row(source, *case) for source, case in zip(cycle(SOURCES), cases)]
    rows += [make_row(source, *SAME["right"][:2]) for source in SOURCES]
    with copy_scorers(gen_cpu) as packages:
        verls = await ask_script(gen_cpu, "verl_scores_side.py", rows, PYTHONPATH=packages)
    async with reward_stack(tmp_path) as (service,):
        ours = await ask_for_rewards(service.address, rows)

    theirs = [reward for *_, reward in SAME.values()] + [verl for _, _, verl, _ in DIFFERENT.values()]
    wanted = [reward for *_, reward in SAME.values()] + [own for *_, own in DIFFERENT.values()]
    assert dict(zip(names, verls[: len(names)], strict=True)) == dict(zip(names, theirs, strict=True))
    assert dict(zip(names, ours[: len(names)], strict=True)) == dict(zip(names, wanted, strict=True))
    assert verls[len(names) :] == ours[len(names) :] == [1.0] * len(SOURCES)
