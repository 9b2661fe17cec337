"""`evalrun data audit-tests` on suites that lost half of their tests: are the weakened ones found, and at what cost?

    .venv/bin/python benchmarks/suite_audit.py

HumanEval and MBPP's regression part. Half of the problems, by a seed, lose every second assert. The programs are
mutants of the published solutions; the whole suite's verdict on a mutant is the truth. The audit knows those with an
even number. A problem is weakened if its halved tests accept a wrong mutant with an odd one, which it never sees.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalrun_data.formats.record import record_of
from evalrun_data.readers import load_problems
from evalrun_data.records import AssertTests, CheckTest, Problem

DATA = Path(os.environ.get("EVALRUN_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SOURCES = {"humaneval": DATA / "humaneval" / "HumanEval.jsonl.gz", "mbpp_reg": DATA / "mbpp" / "mbpp.jsonl.gz"}
AIM = 0.9

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


def main(per_problem: int, max_problems: int | None, seed: int) -> int:
    """Judge the mutants by both suites, audit the halved one, and compare with what the audit did not see."""
    chance, failed = random.Random(seed), False
    for dataset, source in SOURCES.items():
        problems = load_problems(str(source), dataset)[:max_problems]
        lost = {problem.problem_id for problem in problems if chance.random() < 0.5}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            evalrun(
                "data",
                "mutants",
                source,
                "--dataset",
                dataset,
                "--max-mutants",
                str(per_problem),
                "--output",
                folder / "all",
            )
            names = {problem.problem_id for problem in problems}
            rows = [
                row for row in map(json.loads, (folder / "all").read_text().splitlines()) if row["problem_id"] in names
            ]
            programs = write(folder / "programs.jsonl", rows)
            weaker = [halved(each) if each.problem_id in lost else each for each in problems]
            runs = {}
            for name, suite in (("whole", problems), ("half", weaker)):
                file = write(folder / f"{name}.jsonl", [record_of(problem) for problem in suite])
                out = folder / name
                evalrun("judge", "--problems", file, "--responses", programs, "--output", out, "--time-limit", "2")
                runs[name] = verdicts(out)
            told = {key: accepted for key, accepted in runs["whole"].items() if key in runs["half"]}
            seen = [
                {"dataset": d, "problem_id": p, "sample": n, "correct": told[d, p, n]} for d, p, n in told if n % 2 == 0
            ]
            labels, suites = write(folder / "labels.jsonl", seen), folder / "suites.json"
            said = evalrun("data", "audit-tests", folder / "half", "--labels", labels, "--output", suites, codes=(0, 1))
            found = {each["problem_id"] for each in json.loads(suites.read_text())["problems"] if each["accepts_wrong"]}
        slips = {p for (d, p, n), right in told.items() if n % 2 and not right and runs["half"][d, p, n]}
        hit = len(found & slips)
        recall, precision = hit / max(len(slips), 1), len(found & lost) / max(len(found), 1)
        print(f"{dataset}: {len(problems)} problems, {len(lost)} halved, {len(rows)} programs; {said.splitlines()[0]}")
        print(f"  weakened by what the audit did not see: {len(slips)}; found {hit}: recall {recall:.2f}")
        print(f"  named by the audit: {len(found)}, of which halved {len(found & lost)}: precision {precision:.2f}")
        failed |= recall < AIM or precision < AIM
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=20, help="of a problem, at most")
    parser.add_argument("--problems", type=int, help="of each data set; all by default")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(main(arguments.mutants, arguments.problems, arguments.seed))
