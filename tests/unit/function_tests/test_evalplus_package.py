"""EvalPlus' own verdicts, from its package, on the programs that our reader's tests judge.

`EVALRUN_TEST_EVALPLUS` names an interpreter that has the package evalplus, in an environment of its own.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_data.formats.evalplus import parse_evalplus
from evalrun_data.records import CheckTest as RecordedCheck
from evalrun_data.rows import Row
from evalrun_judge.submission import CheckTest

PYTHON = os.environ.get("EVALRUN_TEST_EVALPLUS")

ASKS = """
import json, sys
from evalplus.data.mbpp import mbpp_deserialize_inputs
from evalplus.eval import untrusted_check
from evalplus.gen.util import trusted_exec

answers = []
for row, code in json.load(sys.stdin):
    dataset = "mbpp" if row["task_id"].startswith("Mbpp") else "humaneval"
    reference = row["prompt"] + row["canonical_solution"]
    said = {}
    for suite in ("base", "plus"):
        inputs = row[suite + "_input"]
        inputs = mbpp_deserialize_inputs(row["task_id"], inputs) if dataset == "mbpp" else inputs
        wanted, seconds = trusted_exec(reference, inputs, row["entry_point"], record_time=True, output_not_none=False)
        said[suite] = untrusted_check(
            dataset, code, inputs, row["entry_point"], expected=wanted, atol=row["atol"], ref_time=seconds,
            min_time_limit=4.0,
        )[0]
    answers.append(said)
print("ANSWERS", json.dumps(answers))
"""


def row(
    task: str, body: str, base: list[Any], plus: list[Any], *, head: str = "f(x)", atol: float = 0
) -> dict[str, Any]:
    name = head.partition("(")[0]
    prompt, solution = (
        ('"""\nDo it.\n"""\n', f"\ndef {head}:\n    {body}\n")
        if "Mbpp" in task
        else (f"def {head}:\n", f"    {body}\n")
    )
    return {
        "task_id": task, "prompt": prompt, "entry_point": name, "contract": "", "canonical_solution": solution,
        "base_input": base, "plus_input": plus, "atol": atol,
    }  # fmt: skip


MEAN = row("HumanEval/900", "return sum(x) / len(x)", [[[1, 2]]], [[[1.5, 2, 7]]])
ORDER = row("HumanEval/901", "return sorted(x)", [[[2, 1]]], [[[]]])
CLOSE = row("HumanEval/902", "return x / 3", [[1]], [[2]], atol=0.01)
ROOT = row("HumanEval/32", "return -x[0] / x[1]", [[[1, 2]]], [[[4, 2]]], atol=1e-4)
SHARED = row(
    "Mbpp/2", "return tuple(set(a) & set(b))", [[[1, 2], [2, 3]]], [[[1, 2], [1, 2]]], head="similar_elements(a, b)"
)
PAIRS = row("Mbpp/63", "return max(abs(p - q) for p, q in x)", [[[[3, 5], [1, 7]]]], [[[[4, 6], [2, 17]]]])
COMPLEX = row("Mbpp/252", "import cmath; return cmath.polar(x)", [["1"]], [["1+2j"]])

PROGRAMS = [
    (MEAN, "def f(x): return sum(x) / len(x)"),
    (MEAN, "def f(x): return 0.0"),
    (MEAN, "def f(x): return 1.5"),
    (MEAN, "def f(x): return sum(x) / len(x) + 1e-7"),
    (MEAN, "def f(x): return sum(x) / len(x) + 1e-5"),
    (MEAN, "def f(x): return str(sum(x) / len(x))"),
    (MEAN, "def f(x): raise ValueError"),
    (MEAN, "def f(x):\n  m = sum(x) / len(x)\n  x.clear()\n  return m"),
    (MEAN, "def g(x): return 1.5"),
    (MEAN, "def f(x) return 1.5"),
    (ORDER, "def f(x): return sorted(x)"),
    (ORDER, "def f(x): return tuple(sorted(x))"),
    (ORDER, "def f(x): return sorted(x) or [0]"),
    (ORDER, "def f(x): return [float(y) for y in sorted(x)]"),
    (CLOSE, "def f(x): return x / 3 + 0.009"),
    (CLOSE, "def f(x): return x / 3 + 0.02"),
    (CLOSE, "def f(x): return 0 if x == 1 else x / 3"),
    (ROOT, "def f(x): return -x[0] / x[1] + 1e-5"),
    (ROOT, "def f(x): return -x[0] / x[1] + 1e-3"),
    (SHARED, "def similar_elements(a, b): return [x for x in b if x in a]"),
    (SHARED, "def similar_elements(a, b): return list(b)"),
    (PAIRS, "def f(x): return max(abs(p - q) for p, q in x)"),
    (PAIRS, "def f(x): return 6"),
    (PAIRS, "def f(x): return 6.0 if len(x) else 0"),
    (COMPLEX, "import cmath\ndef f(x): return cmath.polar(x)"),
    (COMPLEX, "def f(x): return (abs(x), 0.0)"),
]


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    running = WarmForks()
    yield running
    running.close()


def ours(forks: WarmForks, row: dict[str, Any], dataset: str, code: str) -> str:
    test = parse_evalplus(Row(row, "file", 1), dataset).ground_truth
    assert isinstance(test, RecordedCheck)
    sent = CheckTest(test.prompt, test.test, test.entry_point)
    return "pass" if judge(sent, code, execute=forks.run).statuses == ["success"] else "fail"


@pytest.mark.timeout(240)
def test_our_verdicts_are_the_packages_own_on_base_and_on_plus(forks: WarmForks) -> None:
    if not PYTHON:
        pytest.skip("EVALRUN_TEST_EVALPLUS names no interpreter with the package evalplus")
    asked = subprocess.run(
        [PYTHON, "-c", ASKS], input=json.dumps(PROGRAMS), capture_output=True, text=True, check=False, timeout=220
    )
    assert asked.returncode == 0, asked.stderr[-2000:]
    (line,) = [line for line in asked.stdout.splitlines() if line.startswith("ANSWERS ")]
    differ = []
    for (given, code), said in zip(PROGRAMS, json.loads(line.removeprefix("ANSWERS ")), strict=True):
        name = "mbpp_plus" if given["task_id"].startswith("Mbpp") else "humaneval_plus"
        # EvalPlus' plus figure takes a program that passes both.
        both = "pass" if said == {"base": "pass", "plus": "pass"} else "fail"
        theirs = ("pass" if said["base"] == "pass" else "fail", both)
        judged = (ours(forks, given, f"{name}_base", code), ours(forks, given, name, code))
        if judged != theirs:
            differ.append((given["task_id"], code, judged, theirs))
    assert differ == []
