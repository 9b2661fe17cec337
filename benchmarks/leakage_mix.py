"""Builds labelled mixes of leaked and unrelated rows from the published problems in EVALRUN_TEST_DATA, by a seed.

Leaked rows come from HumanEval and MBPP 11-210, without the solution unless the kind says otherwise. Unrelated rows are
MBPP's other tasks and contest statements. A mix that is held back uses templates, prefixes and texts that the other mix
does not use.
"""

import ast
import gzip
import json
import random
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KINDS: Final = (
    "verbatim", "template", "prefix", "word changed", "quoted", "renamed", "reformatted", "docstring only",
    "other tests",
)  # fmt: skip
SHARED_TEMPLATE: Final = """\
You are a careful assistant that writes programs for people who will run them without changes. Read the task below to
its end before you answer. Think about empty inputs, about very large inputs, and about inputs that are not in the order
that you expect. Then write one function in Python 3 that solves the task. Do not print anything, do not read from the
keyboard, and do not explain your answer. Use only the standard library, choose clear names, and put the whole program
into a single code block. The task is:"""
TUNED_TEMPLATES: Final = (
    (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{task}\n\n### Response:\n"
    ),
    (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{task}<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "USER: Please solve this programming problem and show the code.\n{task}\nASSISTANT: Sure! Here is the code:",
)
HELD_TEMPLATES: Final = (
    "[INST] <<SYS>>\nAnswer with working code only, and be brief.\n<</SYS>>\n\n{task} [/INST]",
    "@@ Instruction\nHere is a coding exercise for beginners. Complete it as well as you can.\n{task}\n\n@@ Response\n",
    (
        "### Question ###\n{task}\n### Requirements ###\n- correct\n- fast enough for a million elements\n"
        "### Answer ###\n"
    ),
    (
        "Human: I have an interview tomorrow and want to practise. Could you help me with this?\n\n{task}\n\nIt "
        "should run on Python 3.11. Thank you!\n\nAssistant: Of course."
    ),
)
TUNED_PREFIXES: Final = ("Write Python code for this: ", "Q: ", "Problem statement. ")
HELD_PREFIXES: Final = ("Exercise 12 (easy). ", "Can you do the following in Python for me? ", "Task >> ", "TODO: ")
ESSAYS: Final = 3
"""Number of contest statements among which a quoted statement stands."""


@dataclass(frozen=True)
class BenchmarkProblem:
    """A published problem, in parts."""

    key: str
    """Name of the problem in the audit: `DATASET/PROBLEM_ID`."""
    statement: str
    """The problem in words alone; for HumanEval, the docstring."""
    prompt: str
    solution: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class MixRow:
    """A row of a training split, with its label."""

    row_id: str
    kind: str
    """One of `KINDS`, or `unrelated`."""
    original: str | None
    """The problem that leaks."""
    text: str


def build_mix(data: Path, seed: int, *, held: bool, per_kind: int = 120, unrelated: int = 600) -> list[MixRow]:
    """Return a mix: `per_kind` rows of each kind of leak, and unrelated rows, half of them in the same templates.

    Args:
        data: EVALRUN_TEST_DATA.
        seed: seed of every random choice.
        held: whether to use the templates, prefixes and texts that are held back.
        per_kind: rows of each kind of leak.
        unrelated: rows that leak nothing; half of them in templates.
    """
    chance = random.Random(seed)
    problems = read_benchmarks(data)
    texts = _Texts(
        HELD_TEMPLATES if held else TUNED_TEMPLATES,
        HELD_PREFIXES if held else TUNED_PREFIXES,
        contest_statements(data)[held::2],
        sorted({word for each in problems for word in re.findall(r"[a-z]{4,}", each.statement.lower())}),
        [row["test_list"] for row in other_tasks(data)],
    )
    rows = []
    for kind in KINDS:
        fitting = [each for each in problems if kind != "renamed" or each.solution]
        for number, problem in enumerate(chance.sample(fitting, min(per_kind, len(fitting)))):
            text = _MAKERS[kind](problem, texts, chance)
            rows.append(MixRow(f"{kind}-{number}".replace(" ", "-"), kind, problem.key, text))
    others = unrelated_texts(data)
    chance.shuffle(others)
    half = len(others) // 2
    chosen = (others[half:] if held else others[:half])[:unrelated]
    for number, text in enumerate(chosen):
        wrapped = chance.choice(texts.templates).format(task=text) if number % 2 else text
        rows.append(MixRow(f"unrelated-{number}", "unrelated", None, wrapped))
    chance.shuffle(rows)
    return rows


def in_shared_template(text: str) -> str:
    """Return a text behind the template of 85 words that a whole dataset may share."""
    return f"{SHARED_TEMPLATE}\n{text}"


def read_benchmarks(data: Path) -> list[BenchmarkProblem]:
    """Return HumanEval and MBPP 11-210."""
    found = []
    for row in _rows(data / "humaneval" / "HumanEval.jsonl.gz"):
        strings = re.findall(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', row["prompt"], re.DOTALL)
        statement = textwrap.dedent("".join(strings[-1])).strip()
        examples = tuple(f"assert {each}" for each in re.findall(r"candidate\(.*", row["test"])[:3])
        found.append(
            BenchmarkProblem(
                f"humaneval/{row['task_id']}", statement, row["prompt"], row["canonical_solution"], examples
            )
        )
    for row in _rows(data / "mbpp" / "mbpp.jsonl.gz"):
        if 11 <= row["task_id"] <= 210:
            code = row["code"].replace("\r\n", "\n")
            key = f"mbpp_reg/MBPP/{row['task_id']}"
            found.append(BenchmarkProblem(key, row["text"], row["text"], code, tuple(row["test_list"])))
    return found


def contest_statements(data: Path) -> list[str]:
    files = (data / "contests" / "problems.jsonl.gz", data / "codecontests" / "code_contests_20.jsonl.gz")
    return [str(row["statement"]) for file in files for row in _rows(file)]


def unrelated_texts(data: Path) -> list[str]:
    """Return texts that leak nothing: MBPP's other tasks, some with their tests, and contest statements."""
    tasks = enumerate(other_tasks(data))
    texts = [row["text"] if number % 2 else "\n".join([row["text"], *row["test_list"]]) for number, row in tasks]
    return texts + contest_statements(data)


def other_tasks(data: Path) -> list[dict[str, Any]]:
    """Return the rows of MBPP that are not among 11-210."""
    return [row for row in _rows(data / "mbpp" / "mbpp.jsonl.gz") if not 11 <= row["task_id"] <= 210]


@dataclass(frozen=True)
class _Texts:
    templates: tuple[str, ...]
    prefixes: tuple[str, ...]
    essays: list[str]
    words: list[str]
    tests: list[list[str]]
    """Tests of problems that are in no benchmark."""


def _change_word(statement: str, texts: _Texts, chance: random.Random) -> str:
    found = list(re.finditer(r"[A-Za-z]{4,}", statement))
    if not found:
        return statement
    word = chance.choice(found)
    return statement[: word.start()] + chance.choice(texts.words) + statement[word.end() :]


def _quote(statement: str, texts: _Texts, chance: random.Random) -> str:
    essays = chance.sample(texts.essays, ESSAYS)
    place = chance.randrange(1, ESSAYS)
    return "\n\n".join([*essays[:place], statement, *essays[place:]])


def _rename(problem: BenchmarkProblem, _: _Texts, chance: random.Random) -> str:
    code = problem.prompt + problem.solution if problem.key.startswith("humaneval") else problem.solution
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return f"{problem.statement}\n{code}"
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    names |= {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    for number, name in enumerate(sorted(names)):
        code = re.sub(rf"\b{re.escape(name)}\b", f"{chance.choice(('v', 'item', 'tmp', 'res'))}_{number}", code)
    return code if problem.key.startswith("humaneval") else f"{problem.statement}\n{code}"


def _reformat(statement: str, chance: random.Random) -> str:
    words = statement.split()
    width = chance.choice((1, 5, 8))
    lines = [" ".join(words[start : start + width]) for start in range(0, len(words), width)]
    mark = chance.choice(("", "# ", "> ", "* "))
    joined = "\n".join(mark + line for line in lines)
    return joined.upper() if chance.random() < 0.3 else joined


def _as_docstring(problem: BenchmarkProblem) -> str:
    if problem.key.startswith("humaneval"):
        return problem.statement
    return f'"""{problem.statement}"""'


def _with_other_tests(problem: BenchmarkProblem, texts: _Texts, chance: random.Random) -> str:
    """Return the statement without its examples, with another problem's tests."""
    prose = re.split(r"\n\s*(?:>>>|Examples?\b|For example)", problem.statement)[0]
    return "\n".join([prose, *chance.choice(texts.tests)])


_MAKERS: Final[Mapping[str, Callable[[BenchmarkProblem, _Texts, random.Random], str]]] = {
    "verbatim": lambda problem, texts, chance: problem.prompt,
    "template": lambda problem, texts, chance: chance.choice(texts.templates).format(task=problem.prompt),
    "prefix": lambda problem, texts, chance: chance.choice(texts.prefixes) + problem.prompt,
    "word changed": lambda problem, texts, chance: _change_word(problem.statement, texts, chance),
    "quoted": lambda problem, texts, chance: _quote(problem.prompt, texts, chance),
    "renamed": _rename,
    "reformatted": lambda problem, texts, chance: _reformat(problem.prompt, chance),
    "docstring only": lambda problem, texts, chance: _as_docstring(problem),
    "other tests": _with_other_tests,
}


def _rows(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
