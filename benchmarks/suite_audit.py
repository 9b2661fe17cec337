"""`evalrun data audit-tests` on suites that lost half of their tests: are the weakened ones found, and at what cost?

    .venv/bin/python benchmarks/suite_audit.py

HumanEval and MBPP's regression part. Half of the problems, by a seed, lose every second assert. The programs are
mutants of the published solutions; the whole suite's verdict on a mutant is the truth. The audit knows every second one
with a fault, and those that return nothing for a class of inputs. A problem is weakened if its halved tests accept a
wrong mutant that the audit never sees: one of the other faults.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalrun_data.formats.record import record_of
from evalrun_data.readers import load_problems
from evalrun_data.records import AssertTests, CheckTest, Problem
from evalrun_results.metrics.intervals import wilson

DATA = Path(os.environ.get("EVALRUN_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SOURCES = {"humaneval": DATA / "humaneval" / "HumanEval.jsonl.gz", "mbpp_reg": DATA / "mbpp" / "mbpp.jsonl.gz"}
AIM = 0.9
TIME_LIMIT = "0.5"
"""CPU seconds: the references take milliseconds, and a mutant that never ends is wrong after any time."""

OF_A_CLASS = " returns nothing: "
"""In the change of a mutant that is wrong for one class of inputs."""

Key = tuple[str, str, int]


class _Halved(ast.NodeTransformer):
    """Removes every second assert of a check."""

    def __init__(self) -> None:
        self.asserts = 0

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Keep the first, third, ... assert."""
        self.asserts += 1
        return node if self.asserts % 2 else ast.Pass()


def halved(problem: Problem) -> Problem:
    """Return a problem with every second assert gone."""
    truth = problem.ground_truth
    if isinstance(truth, AssertTests):
        return replace(problem, ground_truth=replace(truth, test_list=truth.test_list[::2]))
    if isinstance(truth, CheckTest):
        tree = _Halved().visit(ast.parse(truth.test))
        return replace(problem, ground_truth=replace(truth, test=ast.unparse(tree)))
    raise TypeError(problem.family)


def evalrun(*arguments: str | Path, codes: tuple[int, ...] = (0,)) -> str:
    """Run the command and return what it printed."""
    command = [sys.executable, "-m", "evalrun_cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def verdicts(run: Path) -> dict[Key, bool]:
    """Return which programs of a run were accepted."""
    with (run / "results.jsonl").open() as lines:
        rows = [json.loads(line) for line in lines]
    return {(row["dataset"], row["problem_id"], row["sample"]): row["accepted"] for row in rows if row["judged"]}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judged(folder: Path, name: str, suite: list[Problem], rows: list[dict[str, Any]]) -> dict[Key, bool]:
    """Judge programs by a suite, and return which were accepted."""
    problems = write(folder / f"{name}.jsonl", [record_of(problem) for problem in suite])
    programs, out = write(folder / f"{name}_programs.jsonl", rows), folder / name
    evalrun("judge", "--problems", problems, "--responses", programs, "--output", out, "--time-limit", TIME_LIMIT)
    return verdicts(out)


def main(datasets: list[str], per_problem: int, max_problems: int | None, seed: int) -> int:
    """Judge mutants by both suites, audit the halved one, and compare with what the audit did not see."""
    chance, failed = random.Random(seed), False
    for dataset in datasets:
        source = SOURCES[dataset]
        problems = load_problems(str(source), dataset)[:max_problems]
        lost = {problem.problem_id: problem for problem in problems if chance.random() < 0.5}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            file = folder / "mutants"
            sizes = ("--max-mutants", str(per_problem), "--output", file)
            evalrun("data", "mutants", source, "--dataset", dataset, *sizes)
            number: Counter[str] = Counter()
            faults: Counter[str] = Counter()
            rows, unseen = [], set[Key]()
            for row in map(json.loads, file.read_text().splitlines()):
                if (name := row["problem_id"]) in lost:
                    rows.append({**row, "sample": number[name]})
                    if OF_A_CLASS not in row.get("mutant", OF_A_CLASS):
                        faults[name] += 1
                        if faults[name] % 2:
                            unseen.add((dataset, name, number[name]))
                    number[name] += 1
            half = judged(folder, "half", [*map(halved, lost.values())], rows)
            # What half of the asserts reject, all of them reject.
            passing = [row for row in rows if half.get((dataset, row["problem_id"], row["sample"]))]
            whole = judged(folder, "whole", [*lost.values()], passing)
            told = {key: whole.get(key, False) for key, accepted in half.items() if key in whole or not accepted}
            seen = [
                {"dataset": d, "problem_id": p, "sample": n, "correct": told[d, p, n]}
                for d, p, n in sorted(told.keys() - unseen)
            ]
            labels, suites = write(folder / "labels.jsonl", seen), folder / "suites.json"
            said = evalrun("data", "audit-tests", folder / "half", "--labels", labels, "--output", suites, codes=(0, 1))
            found = {each["problem_id"] for each in json.loads(suites.read_text())["problems"] if each["accepts_wrong"]}
        weak = {p for (d, p, n), right in told.items() if half[d, p, n] and not right}
        slips = {p for d, p, n in unseen & told.keys() if half[d, p, n] and not told[d, p, n]}
        hit = len(found & slips)
        recall, precision = hit / max(len(slips), 1), len(found & weak) / max(len(found), 1)
        low, high = wilson(hit, len(slips)) if slips else (0.0, 1.0)
        print(
            f"{dataset}: {len(lost)} of {len(problems)} problems halved, {len(rows)} programs; {said.splitlines()[0]}"
        )
        missed = f", missed: {', '.join(sorted(slips - found))}" if slips - found else ""
        print(
            f"  weakened by what the audit did not see: {len(slips)}; found {hit}: "
            f"recall {recall:.2f} ({low:.2f} to {high:.2f}){missed}"
        )
        print(
            f"  named by the audit: {len(found)}, of which weakened {len(found & weak)}: precision {precision:.2f}; "
            f"{hit} of them by what it did not see, too"
        )
        failed |= recall < AIM or precision < AIM
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=SOURCES, help="default: both")
    parser.add_argument("--mutants", type=int, default=200, help="of a problem, at most")
    parser.add_argument("--problems", type=int, help="of each data set; all by default")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    datasets = [arguments.dataset] if arguments.dataset else [*SOURCES]
    sys.exit(main(datasets, arguments.mutants, arguments.problems, arguments.seed))
