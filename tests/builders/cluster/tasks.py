"""What runs on a cluster are given: problems, the answers that a playback server gives, and the EvalRuns themselves.

The same files and, but for where the problems lie, the same EvalRun serve a run on one machine.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.data import contests_with_submissions, data_file, write_jsonl
from builders.judge.cheat_programs import BOUNDED, FLOODS, NOTHING_PRINTED, RAW_CALLS, REFUSED, called, tried

from evalrun_data.records import Problem, StdioTests

MODEL = "recorded"
EACH_FAMILY = 30
COMPILED = 6
"""Contest programs in C and C++; each costs a second of compiling."""
FILED = {"accepted", "wrong_answer"}
"""Verdicts of setters that do not depend on how fast the machine is."""
LONGEST = 2.0
"""Seconds a test that the setters allow."""
SLOW = {"kth-challenge-2021/dexsave", "po-kattis-training/training/otur"}
"""Problems whose filed wrong programs take seconds a test; they alone would take most of the run."""
HEADROOM = 5
"""What the setters' time limits are multiplied with: a loaded machine must not change a verdict."""


@dataclass(frozen=True)
class Tasks:
    """Datasets as an EvalRun names them, their files, and what the playback server is told."""

    datasets: Sequence[dict[str, Any]]
    """As in the spec; `source` is a name in `files`, or builtin:demo, and a grader's `path` a name in `files`."""
    files: Mapping[str, Path]
    """By name, all in one directory."""
    problems: Sequence[str]
    responses: Sequence[str]
    """Names in `files`, or builtin:demo."""
    total: int

    def flags(self, place: str) -> list[str]:
        """Return the playback server's flags, its files in the directory `place`."""
        given = [("problems", name) for name in self.problems] + [("responses", name) for name in self.responses]
        return [f"--{flag}={place}/{name}" if name in self.files else f"--{flag}={name}" for flag, name in given]

    def manifest(self, name: str, place: str, endpoint: dict[str, Any], **spec: Any) -> dict[str, Any]:
        """Return the EvalRun.

        Args:
            name: of the run.
            place: where the files are: `pvc://CLAIM` or a directory.
            endpoint: who answers.
            spec: further fields.
        """
        datasets = [
            {**dataset, "source": f"{place}/{dataset['source']}"} if dataset["source"] in self.files else dataset
            for dataset in self.datasets
        ]
        datasets = [
            {**each, "grader": {**each["grader"], "path": f"{place}/{each['grader']['path']}"}}
            if "grader" in each
            else each
            for each in datasets
        ]
        return {
            "apiVersion": "evalrun.dev/v1alpha1",
            "kind": "EvalRun",
            "metadata": {"name": name},
            "spec": {"model": {"path": MODEL}, "datasets": datasets, "endpoints": [endpoint], **spec},
        }


DEMO = Tasks([{"name": "demo", "source": "builtin:demo"}], {}, ["builtin:demo"], ["builtin:demo"], 32)
"""The demo set, which every image holds, so that a run of it needs no volume but its own."""


def demo_verdicts() -> dict[str, str]:
    """Return the filed verdict of each problem of the demo set, on its first sample."""
    filed = json.loads((Path(__file__).parents[2] / "unit" / "data" / "demo_expected.json").read_text())
    return {key.removesuffix("/0"): entry["final_status"] for key, entry in filed.items() if key.endswith("/0")}


def both_families(directory: Path) -> Tasks:
    """Return 30 problems of HumanEval with gpt-4's recorded answers and 30 contest problems with filed programs.

    Where the real data is absent: the demo set, 16 problems of each family.
    """
    try:
        functions, answers = (
            Path(shutil.copy(data_file(name), directory))
            for name in ("humaneval/HumanEval.jsonl.gz", "completions/humaneval_gpt-4_simple_a.jsonl.gz")
        )
        contests = _contests()
    except pytest.skip.Exception:
        return DEMO
    problems = write_jsonl(directory / "contests.jsonl", [_row(*pair) for pair in contests])
    programs = write_jsonl(directory / "programs.jsonl", [_answer(*pair) for pair in contests])
    return Tasks(
        datasets=[
            {"name": "humaneval", "source": functions.name, "maxProblems": EACH_FAMILY},
            {"name": "contests", "source": problems.name},
        ],
        files={path.name: path for path in (functions, answers, problems, programs)},
        problems=[functions.name, problems.name],
        responses=[answers.name, programs.name],
        total=EACH_FAMILY + len(contests),
    )


GRADED = "graded"
GRADER = """\
def closeness(data_source, solution_str, ground_truth, extra_info=None):
    distance = abs(int(solution_str) - int(ground_truth["outputs"][0]))
    return {"score": 1 / (1 + distance), "acc": distance == 0}
"""
GUESSES = {"4": 1.0, "5": 0.5, "7": 0.25}
"""Answers to 2 + 2, and the scores that the grader gives them."""


def with_grader(tasks: Tasks, directory: Path) -> Tasks:
    """Return the same tasks and another dataset, which a grader scores."""
    rows = [
        {
            "dataset": GRADED, "problem_id": guess, "prompt": f"2 + 2, or {guess}?",
            # The same chat with a grader and without, as the server that plays answers back reads it.
            "messages": [{"role": "user", "content": f"2 + 2, or {guess}?"}],
            "ground_truth": {"inputs": [""], "outputs": ["4"]},
        }
        for guess in GUESSES
    ]  # fmt: skip
    problems = write_jsonl(directory / "graded.jsonl", rows)
    answers = write_jsonl(
        directory / "graded_answers.jsonl", [{"dataset": GRADED, "problem_id": n, "response": n} for n in GUESSES]
    )
    grader = directory / "grader.py"
    grader.write_text(GRADER)
    dataset = {"name": GRADED, "source": problems.name, "grader": {"path": grader.name, "name": "closeness"}}
    return Tasks(
        datasets=[*tasks.datasets, dataset],
        files={**tasks.files, **{path.name: path for path in (problems, answers, grader)}},
        problems=[*tasks.problems, problems.name],
        responses=[*tasks.responses, answers.name],
        total=tasks.total + len(GUESSES),
    )


def _contests() -> list[tuple[Problem, dict[str, str]]]:
    """Return problems with little input, each with one of its programs: accepted and not, mostly in Python."""
    found: list[tuple[Problem, dict[str, str]]] = []
    compiled = 0
    for problem, submissions in sorted(contests_with_submissions(), key=lambda pair: _size(pair[0])):
        right = len(found) % 2 == 0
        if (problem.limits.time_seconds or 0) > LONGEST or problem.problem_id in SLOW:
            continue
        usable = [program for program in submissions if program["expected"] in FILED]
        usable.sort(key=lambda filed: (filed["lang"] != "python", (filed["expected"] == "accepted") != right))
        if not usable or (usable[0]["lang"] != "python" and compiled == COMPILED):
            continue
        compiled += usable[0]["lang"] != "python"
        found.append((problem, usable[0]))
    return found[:EACH_FAMILY]


def _size(problem: Problem) -> int:
    tests = problem.ground_truth
    return sum(map(len, (*tests.inputs, *tests.outputs))) if isinstance(tests, StdioTests) else 0


def _row(problem: Problem, program: Mapping[str, str]) -> dict[str, Any]:
    tests, limits, comparator = problem.ground_truth, problem.limits, problem.comparator
    if not isinstance(tests, StdioTests) or limits.time_seconds is None or comparator is None:
        raise ValueError(f"{problem.problem_id} is no contest problem")
    return {
        "dataset": problem.dataset,
        "problem_id": problem.problem_id,
        "prompt": problem.prompt,
        "language": program["lang"],
        "ground_truth": {"inputs": tests.inputs, "outputs": tests.outputs},
        "limits": {"time_seconds": HEADROOM * limits.time_seconds},
        "comparator": {key: value for key, value in asdict(comparator).items() if value not in (None, "")},
    }


def _answer(problem: Problem, program: Mapping[str, str]) -> dict[str, Any]:
    return {
        "dataset": problem.dataset, "problem_id": problem.problem_id, "response": program["code"],
        "mode": "standalone", "language": program["lang"],
    }  # fmt: skip


CHEATS = "cheats"
SECONDS = {"timeout": 0.5}
"""Of a program that ends by its time limit; any other gets 5."""
ENDS = {"output_limit": "runtime_error", "memory_limit": "runtime_error", "exited": "runtime_error"}
"""What becomes of an answer whose run ended so, where it is not called the same."""


@dataclass(frozen=True)
class Cheat:
    """A program, what it must print to be right, and the verdict that it must get."""

    program: str
    wanted: str
    verdict: str
    seconds: float = 5.0
    memory_mib: int = 256


def cheats(machine: str) -> dict[str, Cheat]:
    """Return every cheat by its name.

    One that is refused and says so is right: its problem wants just that. For any other the wanted output is one that
    it cannot know.
    """
    secret = "the expected output, which no program is told\n"
    found = {f"ends early: {name}": Cheat(code, secret, "wrong_answer") for name, code in NOTHING_PRINTED.items()}
    found["ends early: an exception swallowed by a hook"] = Cheat(
        NOTHING_PRINTED["an exception swallowed by a hook"], secret, "runtime_error"
    )
    found |= {f"reaches for: {name}": Cheat(tried(name), "refused\n", "success") for name in REFUSED}
    found |= {f"calls: {name}": Cheat(called(name, machine), "-1 True\n", "success") for name in RAW_CALLS}
    for name, (code, end) in FLOODS.items():
        found[f"floods: {name}"] = Cheat(code, secret, ENDS.get(end, end), SECONDS.get(end, 5.0))
    for name, (code, _) in BOUNDED.items():
        found[f"fills: {name}"] = Cheat(code, secret, "runtime_error", memory_mib=1024)
    return found


def cheating(directory: Path, machine: str) -> Tasks:
    """Return the cheats as problems of a dataset, each answered by its program."""
    known = cheats(machine)
    problems = write_jsonl(
        directory / "cheats.jsonl",
        [
            {
                "dataset": CHEATS, "problem_id": name, "prompt": name,
                "ground_truth": {"inputs": [""], "outputs": [cheat.wanted]},
                "limits": {"time_seconds": cheat.seconds, "memory_mib": cheat.memory_mib},
            }
            for name, cheat in known.items()
        ],
    )  # fmt: skip
    programs = write_jsonl(
        directory / "cheating_programs.jsonl",
        [{"dataset": CHEATS, "problem_id": name, "response": cheat.program, "mode": "standalone"}
         for name, cheat in known.items()],
    )  # fmt: skip
    dataset = {"name": CHEATS, "source": problems.name}
    files = {path.name: path for path in (problems, programs)}
    return Tasks([dataset], files, [problems.name], [programs.name], len(known))


PACED = "paced"
PACE = 1.0
"""Seconds that a program of that dataset sleeps: how many run at once depends on the slots, and not on the CPUs."""


def paced(directory: Path, count: int, name: str = "paced") -> tuple[Tasks, dict[tuple[str, str, int], str]]:
    """Return problems whose answers, all different, take `PACE` seconds and no CPU time; and the verdicts, every third
    of which is wrong_answer. Files of two sets with different names may lie in one directory."""
    wrong = {str(number): number % 3 == 0 for number in range(1, count + 1)}
    problems = write_jsonl(
        directory / f"{name}.jsonl",
        [
            {
                "dataset": PACED, "problem_id": number, "prompt": f"Wait, and print {number}.",
                "ground_truth": {"inputs": [""], "outputs": [f"{number}\n"]}, "limits": {"time_seconds": 10},
            }
            for number in wrong
        ],
    )  # fmt: skip
    programs = write_jsonl(
        directory / f"{name}_programs.jsonl",
        [
            {
                "dataset": PACED, "problem_id": number, "mode": "standalone",
                "response": f"import time\ntime.sleep({PACE})\nprint({number + '0' * is_wrong})\n",
            }
            for number, is_wrong in wrong.items()
        ],
    )  # fmt: skip
    files = {path.name: path for path in (problems, programs)}
    verdicts = {(PACED, number, 0): "wrong_answer" if is_wrong else "success" for number, is_wrong in wrong.items()}
    dataset = {"name": PACED, "source": problems.name}
    return Tasks([dataset], files, [problems.name], [programs.name], count), verdicts


def verdicts_of(results: str) -> dict[tuple[str, str, int], str]:
    """Return each answer's final status by (dataset, problem, sample), from the text of a results.jsonl."""
    rows = [json.loads(line) for line in results.splitlines()]
    found = {(row["dataset"], row["problem_id"], row["sample"]): row["final_status"] for row in rows}
    if len(found) != len(rows):
        raise ValueError(f"{len(rows) - len(found)} rows are doubled")
    return found
