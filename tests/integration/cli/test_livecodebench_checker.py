"""LiveCodeBench's rows and outputs through the command, beside the verdicts of LiveCodeBench's own checker.

`EVALRUN_TEST_LIVECODEBENCH` names a checkout of LiveCodeBench, whose `lcb_runner/evaluation/testing_util.py` is loaded,
one program a process. Without it our verdicts alone are held against the table below.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import PROJECT, evalrun, results

CHECKOUT = os.environ.get("EVALRUN_TEST_LIVECODEBENCH")

ASKS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lcb_runner.evaluation.testing_util import run_test
sample, code = json.load(sys.stdin)
told = sys.stdout
results, _ = run_test(sample, test=code, timeout=3)
told.write("\\nANSWER " + ("accept" if all(result > 0 for result in results) else "reject"))
told.flush()
"""


@dataclass(frozen=True)
class Shape:
    """A program and its verdicts; `why` stands in docs/data-formats.md where they differ."""

    problem: str
    code: str
    accepted_by: frozenset[str]
    why: str = ""


STDIN: dict[str, list[tuple[str, str]]] = {
    "sum": [("1 2\n", "3\n"), ("5 7\n", "12\n")],
    "lines": [("2\n", "1\n2\n"), ("3\n", "1\n2\n3\n")],
    "half": [("1\n", "0.5\n"), ("3\n", "1.5\n")],
    "words": [("a\n", "YES a\n"), ("b\n", "YES b\n")],
    "blank": [("x\n", "a\n\nb\n")],
}
CALLS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "pair": ("pair", [("1\n2", "[1, 2]"), ("3\n4", "[3, 4]")]),
    "grid": ("grid", [("2", "[[0, 0], [0, 0]]")]),
    "ratio": ("ratio", [("1\n4", "0.25"), ("2\n2", "1.0")]),
    "none": ("none", [("1", "null")]),
    "even": ("even", [("2", "true"), ("3", "false")]),
}


def method(name: str, arguments: str, body: str) -> str:
    return f"class Solution:\n    def {name}(self, {arguments}):\n        {body}\n"


OURS, THEIRS = frozenset({"ours"}), frozenset({"theirs"})
BOTH, NEITHER = OURS | THEIRS, frozenset[str]()
LINES, MODULE, STDIN_MOCK, FORGED = "lines", "module", "stdin", "forged"
SHAPES = {
    "sum by input": Shape("sum", "print(sum(map(int, input().split())))", BOTH),
    "sum by readline": Shape("sum", "import sys\na, b = map(int, sys.stdin.readline().split())\nprint(a + b)", BOTH),
    "sum in main": Shape(
        "sum",
        "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
        BOTH,
    ),
    "sum without its import": Shape("sum", "print(reduce(add, map(int, input().split())))", BOTH),
    "wrong sum": Shape("sum", "print(3)", NEITHER),
    "nothing printed": Shape("sum", "input()", NEITHER),
    "fails after its answer": Shape("sum", "print(sum(map(int, input().split())))\nraise ValueError", NEITHER),
    "exits with 0": Shape("sum", "import sys\nprint(sum(map(int, input().split())))\nsys.exit(0)", BOTH),
    "as a float": Shape("sum", "print(float(sum(map(int, input().split()))))", BOTH),
    "with an exponent": Shape("sum", "print(f'{sum(map(int, input().split())):e}')", BOTH),
    "almost": Shape("sum", "print(sum(map(int, input().split())) + 1e-9)", NEITHER),
    "spaces around": Shape("sum", "print('  ', sum(map(int, input().split())), '  ')\nprint()", BOTH),
    "a word more": Shape("sum", "print(sum(map(int, input().split())), 'done')", NEITHER),
    "does not end": Shape("sum", "while True: pass", NEITHER),
    "does not compile": Shape("sum", "print(1", NEITHER),
    "its lines": Shape("lines", "print(*range(1, int(input()) + 1), sep='\\n')", BOTH),
    "its lines as one": Shape("lines", "print(*range(1, int(input()) + 1))", OURS, LINES),
    "its lines and empty ones": Shape("lines", "for i in range(1, int(input()) + 1): print(i, '\\n')", OURS, LINES),
    "its lines, each with spaces": Shape("lines", "for i in range(1, int(input()) + 1): print('', i, '')", BOTH),
    "its lines without an empty one": Shape("blank", "print('a\\nb')", OURS, LINES),
    "a half": Shape("half", "print(int(input()) / 2)", BOTH),
    "a half with noughts": Shape("half", "print(f'{int(input()) / 2:.6f}')", BOTH),
    "a half without its nought": Shape("half", "print(str(int(input()) / 2).lstrip('0'))", BOTH),
    "another case": Shape("words", "print('yes', input())", NEITHER),
    "more spaces between": Shape("words", "print('YES  ', input())", OURS, LINES),
    "a state of the module": Shape(
        "sum",
        "n = 0\ndef add(x):\n    global n\n    n += x\nfor x in input().split(): add(int(x))\nprint(n)",
        OURS,
        MODULE,
    ),
    "the other way round": Shape(
        "sum", "if '__main__' == __name__:\n    print(sum(map(int, input().split())))", OURS, MODULE
    ),
    "bytes by line": Shape(
        "sum",
        "import sys\nread = sys.stdin.buffer.readline\nprint(sum(map(int, read().split())))\nassert not read()",
        OURS,
        STDIN_MOCK,
    ),
    "by its descriptor": Shape(
        "sum", "import os\nos.write(1, b'%d' % sum(map(int, os.read(0, 99).split())))", OURS, STDIN_MOCK
    ),
    "a list": Shape("pair", method("pair", "a, b", "return [a, b]"), BOTH),
    "a tuple": Shape("pair", method("pair", "a, b", "return a, b"), BOTH),
    "floats": Shape("pair", method("pair", "a, b", "return [float(a), float(b)]"), BOTH),
    "another order": Shape("pair", method("pair", "a, b", "return [b, a]"), NEITHER),
    "an iterator": Shape("pair", method("pair", "a, b", "return iter([a, b])"), NEITHER),
    "a text": Shape("pair", method("pair", "a, b", "return str([a, b])"), NEITHER),
    "printed": Shape("pair", method("pair", "a, b", "print(a, b); return [a, b]"), BOTH),
    "typed without its import": Shape(
        "pair", "class Solution:\n    def pair(self, a: int, b: int) -> List[int]:\n        return [a, b]\n", BOTH
    ),
    "another name": Shape("pair", method("pairs", "a, b", "return [a, b]"), NEITHER),
    "an exception": Shape("pair", method("pair", "a, b", "raise ValueError"), NEITHER),
    "equal to everything": Shape(
        "pair",
        "class Any(list):\n    def __eq__(self, other): return True\n" + method("pair", "a, b", "return Any()"),
        THEIRS,
        FORGED,
    ),
    "lists in a list": Shape("grid", method("grid", "n", "return [[0] * n for _ in range(n)]"), BOTH),
    "tuples in a list": Shape("grid", method("grid", "n", "return [(0,) * n for _ in range(n)]"), NEITHER),
    "a quarter": Shape("ratio", method("ratio", "a, b", "return a / b"), BOTH),
    "almost a quarter": Shape("ratio", method("ratio", "a, b", "return a / b + 1e-12"), NEITHER),
    "nothing": Shape("none", method("none", "a", "pass"), BOTH),
    "false for nothing": Shape("none", method("none", "a", "return False"), NEITHER),
    "true": Shape("even", method("even", "a", "return a % 2 == 0"), BOTH),
    "one for true": Shape("even", method("even", "a", "return 1 - a % 2"), BOTH),
}


def rows() -> list[dict[str, Any]]:
    """The problems, as LiveCodeBench publishes them."""
    tests = {name: ("stdin", "", "", cases) for name, cases in STDIN.items()}
    for name, (function, cases) in CALLS.items():
        starter = f"class Solution:\n    def {function}(self"
        tests[name] = ("functional", starter, json.dumps({"func_name": function}), cases)
    return [
        {
            "question_title": name, "question_content": f"Do {name}.", "platform": "codeforces", "question_id": name,
            "contest_id": "1", "contest_date": "2024-08-31T00:00:00", "starter_code": starter, "difficulty": "easy",
            "public_test_cases": json.dumps([{"input": i, "output": o, "testtype": kind} for i, o in cases]),
            "private_test_cases": "[]", "metadata": metadata or "{}",
        }
        for name, (kind, starter, metadata, cases) in tests.items()
    ]  # fmt: skip


@pytest.mark.timeout(300)
def test_livecodebench_rows_and_outputs_get_the_expected_verdicts(tmp_path: Path) -> None:
    problems, outputs = tmp_path / "livecodebench.jsonl", tmp_path / "outputs.json"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    answers: dict[str, list[str]] = {row["question_id"]: [] for row in rows()}
    names: dict[tuple[str, int], str] = {}
    for name, shape in SHAPES.items():
        names[shape.problem, len(answers[shape.problem])] = name
        answers[shape.problem].append(shape.code)
    outputs.write_text(json.dumps([{"question_id": name, "code_list": codes} for name, codes in answers.items()]))
    done = evalrun(
        "judge",
        "--problems",
        problems,
        "--responses",
        outputs,
        "--output",
        tmp_path / "out",
        "--time-limit",
        "1",
        "--samples",
        "as-given",
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {names[row["problem_id"], row["sample"]]: row["accepted"] for row in results(tmp_path / "out")}
    assert {name for name, accepted in found.items() if accepted} == {
        name for name, s in SHAPES.items() if "ours" in s.accepted_by
    }
    assert len(found) == len(SHAPES)


@pytest.mark.timeout(600)
def test_livecodebenchs_own_verdicts_differ_only_where_the_table_says_so() -> None:
    if not CHECKOUT:
        pytest.skip("EVALRUN_TEST_LIVECODEBENCH names no checkout of LiveCodeBench")
    told = {}
    for name, shape in SHAPES.items():
        cases = STDIN.get(shape.problem) or CALLS[shape.problem][1]
        given: dict[str, Any] = {"inputs": [i for i, _ in cases], "outputs": [o for _, o in cases]}
        if shape.problem in CALLS:
            given["fn_name"] = CALLS[shape.problem][0]
        asked = subprocess.run(
            [sys.executable, "-c", ASKS, str(CHECKOUT)],
            input=json.dumps([{"input_output": json.dumps(given)}, shape.code]),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        answer = re.search(r"^ANSWER (\w+)$", asked.stdout, re.MULTILINE)
        assert answer is not None, f"{name}: {asked.stdout}{asked.stderr[-2000:]}"
        told[name] = answer.group(1) == "accept"
    assert told == {name: "theirs" in shape.accepted_by for name, shape in SHAPES.items()}


def test_each_difference_has_its_reason_in_the_documentation() -> None:
    page = " ".join((PROJECT / "docs" / "data-formats.md").read_text().split())
    differing = {name for name, shape in SHAPES.items() if len(shape.accepted_by) == 1}
    assert differing == {name for name, shape in SHAPES.items() if shape.why}
    assert f"{len(SHAPES)} programs of ours got its checker's own verdict, except for {len(differing)}" in page
