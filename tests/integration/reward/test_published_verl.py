"""The published verl 0.9.1 loads our function and our manager, and gets its own rewards where its own are right."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.fusion.server import StockDouble, stock_double
from builders.other_interpreter import ask_script
from builders.reward.stack import reward_stack

pytestmark = pytest.mark.timeout(600)
"""Importing verl takes some 10 s of CPU."""

PAIRS = {"inputs": ["1\n", "2\n", "3\n", "4\n"], "outputs": ["1\n", "4\n", "9\n", "16\n"]}
ASSERTS = {"assert_case": ["assert f(3) == 9", "assert f(4) == 16"]}
READS_ITS_OWN_FILE = (
    "import re\ndef f(x):\n    return int(re.search(rf'assert f\\({x}\\) == (\\d+)', open(__file__).read()).group(1))\n"
)


def fenced(code: str) -> str:
    return f"Here:\n```python\n{code}\n```\n"


SAME: dict[str, tuple[dict[str, Any], str, float]] = {
    "right": (PAIRS, fenced("print(int(input()) ** 2)"), 1.0),
    "wrong": (PAIRS, fenced("print(0)"), 0.0),
    "half": (PAIRS, fenced("n = int(input()); print(n * n if n < 3 else 0)"), 0.5),
    "raises on one": (PAIRS, fenced("n = int(input()); print(n * n // (n != 2))"), 0.75),
    "does not compile": (PAIRS, fenced("print("), 0.0),
    "an early block and a late one": (PAIRS, fenced("print(0)") + fenced("print(int(input()) ** 2)"), 1.0),
    "asserts hold": (ASSERTS, fenced("def f(x):\n    return x * x"), 1.0),
    "asserts fail": (ASSERTS, fenced("def f(x):\n    return x"), 0.0),
}
DIFFERENT: dict[str, tuple[dict[str, Any], str, float, float]] = {
    "a forged pass: it ends with 0 before the asserts": (ASSERTS, fenced("import os\nos._exit(0)"), 1.0, 0.0),
    "a leak: it reads the asserts in its own file": (ASSERTS, fenced(READS_ITS_OWN_FILE), 1.0, 0.0),
    "a blank at the line's end": (PAIRS, fenced("print(int(input()) ** 2, '')"), 0.0, 1.0),
    "no block, but a program": (PAIRS, "print(int(input()) ** 2)", 0.0, 1.0),
}
"""(tests, answer, verl's reward, ours)."""


def row(truth: dict[str, Any], answer: str) -> dict[str, Any]:
    return {"data_source": "codecontests", "ground_truth": json.dumps(truth), "solution": answer}


def slow() -> dict[str, Any]:
    """More tests of 0.3 CPU seconds than fit into a second of all cores: each waits, and none needs a second."""
    number = 16 * (os.cpu_count() or 1)
    code = "import time\nprint(input())\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    texts = [f"{index}\n" for index in range(number)]
    return {"ground_truth": json.dumps({"inputs": texts, "outputs": texts}), "solution": fenced(code)}


async def test_rewards_equal_those_of_verl_except_for_known_differences(gen_cpu: Path, tmp_path: Path) -> None:
    rows = [row(truth, answer) for truth, answer, _ in SAME.values()]
    rows += [row(truth, answer) for truth, answer, _, _ in DIFFERENT.values()]
    async with (
        reward_stack(tmp_path, reward_arguments=["--time-limit", "1"]) as (service,),
        stock_double(StockDouble()) as fusion,
    ):
        asked = {"url": service.address, "fusion": fusion, "rows": rows, "slow": slow()}
        given = await ask_script(gen_cpu, "reward/verl_side.py", asked)

    own = [reward for _, _, reward in SAME.values()] + [ours for *_, ours in DIFFERENT.values()]
    verls = [reward for _, _, reward in SAME.values()] + [verl for *_, verl, _ in DIFFERENT.values()]
    names = [*SAME, *DIFFERENT]
    for way in ("compute_score", "compute_score_async", "main_eval", "manager"):
        assert dict(zip(names, given[way], strict=True)) == dict(zip(names, own, strict=True)), way
    assert dict(zip(names, given["verl"], strict=True)) == dict(zip(names, verls, strict=True))
    assert (given["ours_slow"], given["verl_slow"] < 1.0) == (1.0, True)  # a timeout under load

    extra = dict(zip(names, given["extra"], strict=True))
    assert extra["half"]["codes"] == "True,True,False,False"
    assert extra["raises on one"]["codes"] == "True,-2,True,True"
    assert extra["does not compile"]["codes"] == "-4,-4,-4,-4"
    assert {"score", "acc", "judged", "pass_ratio", "f2p_count", "assumed_timeouts"} <= set(given["logged"])
