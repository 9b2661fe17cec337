"""Programs found in answers: ours beside EvalPlus' `sanitize`, by class of answer.

    .venv/bin/python benchmarks/extraction.py --evalplus DIR [--problems 4] [--recorded] [--verbose]

Takes HumanEval's reference solutions and recorded completions of models that pass their tests, and writes each as
models write answers: in one block, with thoughts, quoted, wrapped, cut, without a fence. With `--recorded` every
recorded completion is judged as it stands too, and so are the answers that are filed as right. A program counts as
found if it passes the problem's tests, run by plain Python. Prints for each class how many of its answers each tool
finds, and ends with status 1 if EvalPlus finds more in any class. DIR: a directory with the package `evalplus` and what
its `sanitize` imports, which only this benchmark needs:

    pip install --target DIR --no-deps evalplus==0.3.1 tree-sitter tree-sitter-python tqdm

Data: EVALRUN_TEST_DATA, or ../shared/data.
"""

import argparse
import gzip
import importlib
import json
import os
import re
import signal
import sys
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from builders.data import data_file

from evalrun_judge.extraction import SubmissionMode, extract

Problem = dict[str, str]
SECONDS = 20
USE = "For example:\n```python\nprint({entry})\n```\n"
DRAFT = "```python\ndef {entry}(*args):\n    return None  # a first draft\n```\n"


def fenced(code: str) -> str:
    return f"```python\n{code}\n```\n"


def indented(code: str, by: str) -> str:
    return "".join(f"{by}{line}\n" if line.strip() else "\n" for line in code.split("\n"))


def documented(code: str, text: str) -> str:
    return f'"""\n{text}\n"""\n{code}'


CLASSES: dict[str, Callable[[str, str], str]] = {
    "one block": lambda code, _: f"Here is the solution:\n\n{fenced(code)}\nIt works.",
    "an untagged block": lambda code, _: f"Sure:\n```\n{code}\n```\n",
    "an example after it": lambda code, entry: fenced(code) + USE.format(entry=entry),
    "a draft before it": lambda code, entry: DRAFT.format(entry=entry) + "\nBetter:\n" + fenced(code),
    "output after it": lambda code, _: fenced(code) + "Output:\n```\n[1, 2]\n```\n",
    "thoughts before it": lambda code, entry: f"<think>\nMaybe {DRAFT.format(entry=entry)}</think>\n" + fenced(code),
    "tildes": lambda code, _: f"~~~python\n{code}\n~~~\n",
    "CRLF": lambda code, _: ("Solution:\n" + fenced(code)).replace("\n", "\r\n"),
    "in a list": lambda code, _: "1. Write it:\n\n" + indented(fenced(code), "   "),
    "a fence inside a docstring": lambda code, e: fenced(documented(code, f"```\n{e}(1)\n```")),
    "a tagged fence inside a docstring": lambda code, e: fenced(documented(code, f"Use:\n```python\n{e}(1)\n```")),
    "a special token after the fence": lambda code, _: f"```python\n{code}\n```<|im_end|>",
    "a special token and a next turn": lambda code, _: f"{fenced(code)}<|im_end|>\n<|im_start|>user\nThanks",
    "a byte order mark": lambda code, _: "\ufeff" + fenced(code),
    "a byte order mark in the block": lambda code, _: f"```python\n\ufeff{code}\n```\n",
    "unclosed": lambda code, _: f"Here:\n```python\n{code}\n",
    "unclosed after a closed draft": lambda code, e: DRAFT.format(entry=e) + f"Better:\n```python\n{code}\n",
    "a closing fence of two backticks": lambda code, _: f"```python\n{code}\n``",
    "a fence at the end of the code": lambda code, _: f"```python\n{code.rstrip()}```\nDone.",
    "prose after the closing fence": lambda code, _: f"```python\n{code}\n``` This is what you asked for.\n",
    "words before the opening fence": lambda code, _: f"Solution: ```python\n{code}\n```\n",
    "quoted": lambda code, _: "".join(f"> {line}\n" for line in fenced(code).split("\n")),
    "wrapped in a longer fence": lambda code, _: f"````markdown\n# Solution\n{fenced(code)}````\n",
    "wrapped in tildes": lambda code, _: f"~~~\n{fenced(code)}~~~\n",
    "wrapped in the same fence": lambda code, _: f"```\n{fenced(code)}```\n",
    "channels": lambda code, e: (
        f"<|channel|>analysis<|message|>{DRAFT.format(entry=e)}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{fenced(code).rstrip()}<|return|>"
    ),
    "an entry point under if": lambda code, e: fenced("if True:\n" + indented(code, "    ")) + USE.format(entry=e),
    "no fence": lambda code, _: code,
    "no fence, prose around it": lambda code, _: f"The solution is this:\n\n{code}\n\nIt takes linear time.\n",
    "no opening fence": lambda code, _: f"{code}\n```\nThis works.",
    "[PYTHON] marks": lambda code, _: f"[PYTHON]\n{code}\n[/PYTHON]",
    "[BEGIN] marks": lambda code, _: f"[BEGIN]\n{code}\n[DONE]",
    "answer tags": lambda code, _: f"<answer>\n{code}\n</answer>",
    "cut in tests after it": lambda code, e: f"```python\n{code}\n\ndef test_it():\n    assert {e}(1) ==",
    "a special token without a fence": lambda code, _: f"{code}\n<|endoftext|>",
}


def read_lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(data_file(name), "rt") as lines:
        return list(map(json.loads, lines))


def right_programs(problems: int) -> list[tuple[Problem, str]]:
    """Return problems and programs that pass their tests: references, and recorded completions in turn."""
    known = {row["task_id"]: row for row in read_lines("humaneval/HumanEval.jsonl.gz")}
    found = [(row, row["prompt"] + row["canonical_solution"]) for row in list(known.values())[:problems]]
    for name in ("ollama-qwen2.5-coder_7b", "ollama-codellama_7b"):
        for row in read_lines(f"completions/humaneval_{name}.jsonl.gz")[:problems]:
            problem = known[row["task_id"]]
            text = row.get("completion") or row.get("solution") or ""
            code = problem["prompt"] + text if row.get("mode") == "append" else text
            if "```" not in code and f"def {problem['entry_point']}" in code:
                found.append((problem, code.rstrip()))
    return found


def recorded_answers() -> list[tuple[str, Problem, str]]:
    """Return class, problem and text of recorded answers, right and wrong, and of the answers that are filed as right.

    A completion that continues with the body of the prompt's function stands after the prompt.
    """
    known = {row["task_id"]: row for row in read_lines("humaneval/HumanEval.jsonl.gz")}
    found = []
    for name in ("gpt-4_simple_a", "ollama-qwen2.5-coder_7b", "ollama-codellama_7b"):
        for row in read_lines(f"completions/humaneval_{name}.jsonl.gz"):
            problem, text = known[row["task_id"]], row["completion"]
            whole = re.search(rf"^def {problem['entry_point']}\b", text, re.MULTILINE) or row["mode"] == "full"
            found.append((f"recorded: {name}", problem, text if whole else problem["prompt"] + text))
    for line in data_file("verdicts2/extraction.jsonl").read_text(encoding="utf-8").splitlines():
        filed = json.loads(line)
        if filed["expected"] == "accept" and "entry_point" in filed["problem"]["ground_truth"]:
            found.append(("filed as right", filed["problem"]["ground_truth"], filed["response"]["response"]))
    return found


def evalplus_sanitize(directory: Path) -> Callable[[str, str], str]:
    """Return EvalPlus' function `sanitize`, loaded without the packages that only EvalPlus' command needs."""
    sys.path.append(str(directory))
    data = types.ModuleType("evalplus.data")
    names = ("get_human_eval_plus", "get_mbpp_plus", "load_solutions", "write_directory", "write_jsonl")
    vars(data).update(dict.fromkeys(names))
    sys.modules["evalplus.data"] = data
    sanitize = importlib.import_module("evalplus.sanitize").sanitize

    def found(text: str, entry: str) -> str:
        code: str = sanitize(text, entrypoint=entry)
        return code

    return found


def ours(text: str, entry: str, compiles: Callable[[str], bool]) -> str:
    found = extract(text, language="python", mode=SubmissionMode.AUTO, entry_point=entry)
    return found.code if compiles(found.code) or not found.otherwise else found.otherwise


def compiles(prompt: str) -> Callable[[str], bool]:
    def test(code: str) -> bool:
        try:
            compile(f"{prompt}\n{code}", "p", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return True

    return test


def passes(problem: Problem, code: str) -> bool:
    """Return whether a program passes a problem's tests under plain Python, after the prompt and as a module."""
    text = f"{problem['prompt']}\n{code}\n{problem['test']}\ncheck({problem['entry_point']})\n"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(SECONDS)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            exec(compile(text, "p.py", "exec", dont_inherit=True), {"__name__": "program"})
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def main() -> int:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalplus", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=4)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    sanitize = evalplus_sanitize(given.evalplus)
    programs = [each for each in right_programs(given.problems) if passes(*each)]
    answers = recorded_answers() if given.recorded else []
    answers += [
        (name, problem, write(code, problem["entry_point"]))
        for name, write in CLASSES.items()
        for problem, code in programs
    ]

    def judge(answer: tuple[str, Problem, str]) -> tuple[bool, bool]:
        _, problem, text = answer
        entry = problem["entry_point"]
        mine, other = ours(text, entry, compiles(problem["prompt"])), sanitize(text, entry)
        right = passes(problem, mine)
        return right, right if mine == other else passes(problem, other)

    results = [judge(answer) for answer in answers]
    right, theirs = Counter[str](), Counter[str]()
    asked = Counter(name for name, _, _ in answers)
    for (name, problem, text), (mine, other) in zip(answers, results, strict=True):
        right[name] += mine
        theirs[name] += other
        if given.verbose and (other and not mine if name.startswith("recorded") else not mine):
            print(f"--- {name}, {problem['entry_point']}\n{text}\n")
    print(f"{len(answers)} answers, {len(programs)} right programs\n")
    print(f"{'class of answer':36}{'answers':>9}{'ours':>7}{'EvalPlus':>10}")
    for name in asked:
        print(f"{name:36}{asked[name]:>9}{right[name]:>7}{theirs[name]:>10}")
    print(f"{'all':36}{len(answers):>9}{right.total():>7}{theirs.total():>10}")
    return int(any(theirs[name] > right[name] for name in asked))


if __name__ == "__main__":
    raise SystemExit(main())
