"""`evalrun data audit-tests` on suites that lost half of their tests: are the weakened ones found, and at what cost?

    .venv/bin/python benchmarks/suite_audit.py [--strong HumanEvalPlus.jsonl.gz] [--problems 40] [--part 0:1]

A sample of HumanEval and of MBPP's regression part, by the seed, of which each problem loses every second assert. The
programs are mutants of the published solutions. The audit has the halved tests, tests made of them by `evalrun data
vary-tests`, and every second mutant with a fault beside those that return nothing for a class of inputs. It knows no
whole suite. A problem is weakened if its halved tests accept a mutant that the whole suite rejects; recall is measured
on those that a mutant shows which the audit does not have.

With `--strong FILE`, EvalPlus' own of the dataset, precision is measured too: the audit also gets EvalPlus' suites of
the same problems, in the same way. Of the suites that it names, those halved and shown to be weak by the whole suite or
by EvalPlus' are right; those of EvalPlus, and any others, are wrong.

A mutant's timeout is confirmed with all of its sandbox's slots empty, so more cores help little: `--part BEGIN:STEP`
divides the sample over several commands, each on two cores of its own, whose counts add up.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalrun_data.formats.record import make_problem_record
from evalrun_data.readers import load_problems
from evalrun_data.records import AssertTests, CheckTest, Problem
from evalrun_results.metrics.intervals import wilson

DATA = Path(os.environ.get("EVALRUN_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SOURCES = {"humaneval": DATA / "humaneval" / "HumanEval.jsonl.gz", "mbpp_reg": DATA / "mbpp" / "mbpp.jsonl.gz"}
AIM = 0.9
TIME_LIMIT, STRONG_TIME_LIMIT = "0.5", "1"
"""CPU seconds: the references take milliseconds, and a mutant that never ends is wrong after any time. EvalPlus' suites
have hundreds of inputs."""

OF_A_CLASS = " returns nothing: "
"""Text in the description of a mutant that is wrong for one class of inputs."""

Row = dict[str, Any]
Key = tuple[str, int]


class _Halved(ast.NodeTransformer):
    """Removes every second assert of a check."""

    def __init__(self) -> None:
        self.asserts = 0

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Keep the first, third, ... assert."""
        self.asserts += 1
        return node if self.asserts % 2 else ast.Pass()


def halved(problem: Problem) -> Problem:
    truth = problem.ground_truth
    if isinstance(truth, AssertTests):
        return replace(problem, ground_truth=replace(truth, test_list=truth.test_list[::2]))
    if isinstance(truth, CheckTest):
        tree = _Halved().visit(ast.parse(truth.test))
        return replace(problem, ground_truth=replace(truth, test=ast.unparse(tree)))
    raise TypeError(problem.family)


def evalrun(*arguments: str | Path, codes: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-m", "evalrun_cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def write(path: Path, rows: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def share(hits: int, of: int) -> str:
    low, high = wilson(hits, of) if of else (0.0, 1.0)
    return f"{hits} of {of} = {hits / max(of, 1):.3f} ({low:.2f} to {high:.2f})"


@dataclass
class Bench:
    """Judges programs in a directory, and counts them."""

    directory: Path
    programs: int = 0

    def accepted(self, name: str, suites: list[Problem], rows: list[Row], limit: str = TIME_LIMIT) -> dict[Key, bool]:
        """Judge the programs of these problems, and return which were accepted."""
        wanted = {each.problem_id for each in suites}
        rows = [row for row in rows if row["problem_id"] in wanted]
        problems = write(self.directory / f"{name}.jsonl", map(make_problem_record, suites))
        programs, out = write(self.directory / f"{name}_programs.jsonl", rows), self.directory / name
        if rows:
            judged = ("--responses", programs, "--output", out, "--time-limit", limit)
            # Status 3 means that some programs could not be judged.
            evalrun("judge", "--problems", problems, *judged, codes=(0, 3))
            self.programs += len(rows)
            found = map(json.loads, (out / "results.jsonl").read_text().splitlines())
            return {(row["problem_id"], row["sample"]): row["accepted"] for row in found if row["judged"]}
        return {}

    def audit(self, name: str, suites: list[Problem], rows: list[Row], accepted: dict[Key, bool]) -> dict[str, Any]:
        """Audit suites whose verdicts on these programs are known, and return each problem's figures."""
        written, references = self.directory / f"{name}.jsonl", self.directory / "references.jsonl"
        varied = self.directory / f"{name}_varied.jsonl"
        evalrun("data", "vary-tests", written, "--references", references, "--output", varied)
        passing = [row for row in rows if accepted.get((row["problem_id"], row["sample"]))]
        judged = self.accepted(f"{name}_by_varied", load_problems(str(varied)), passing, STRONG_TIME_LIMIT)
        labels = write(self.directory / f"{name}_labels.jsonl", [row for row in rows if key_of(row) in accepted])
        out = self.directory / f"{name}_suites.json"
        found = ("--varied", self.directory / f"{name}_by_varied") if judged else ()
        evalrun("data", "audit-tests", self.directory / name, "--labels", labels, *found, "--output", out, codes=(0, 1))
        return {each["problem_id"]: each for each in json.loads(out.read_text())["problems"]}


def positions(text: str) -> slice:
    begin, step = map(int, text.split(":"))
    return slice(begin, None, step)


def key_of(row: Row) -> Key:
    return row["problem_id"], row["sample"]


def strong_suites(source: str, like: list[Problem]) -> list[Problem]:
    """Return EvalPlus' suites of these problems, as problems of the same dataset."""
    found = {each.problem_id: each for each in load_problems(source) if not each.dataset.endswith("_base")}
    both = [(each, found[each.problem_id]) for each in like if each.problem_id in found]
    return [replace(strong, dataset=each.dataset) for each, strong in both]


def main(dataset: str, strong: str | None, per_problem: int, problems: int, pool: slice, part: slice, seed: int) -> int:
    """Judge mutants by both suites, audit the halved suite, and compare its findings with the mutants that the audit
    did not see. Return the exit code."""
    begun = time.monotonic()
    every = load_problems(str(SOURCES[dataset]), dataset)[pool]
    sample = random.Random(seed).sample(every, min(problems, len(every)))[part]
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(Path(temporary))
        source, file = (
            write(bench.directory / "sample.jsonl", map(make_problem_record, sample)),
            bench.directory / "mutants",
        )
        wanted = {each.problem_id for each in sample}
        sizes = ("--max-mutants", str(per_problem), "--output", file)
        evalrun("data", "mutants", SOURCES[dataset], "--dataset", dataset, *sizes)
        number, faults = Counter[str](), Counter[str]()
        rows, unseen = list[Row](), set[Key]()
        for row in map(json.loads, file.read_text().splitlines()):
            if (name := row["problem_id"]) in wanted:
                rows.append({**row, "sample": number[name]})
                if OF_A_CLASS not in row.get("mutant", OF_A_CLASS):
                    faults[name] += 1
                    if (faults[name] + seed) % 2:
                        unseen.add((name, number[name]))
                number[name] += 1
        source.unlink()
        write(bench.directory / "references.jsonl", [row for row in rows if row.get("correct")])
        seen = [row for row in rows if key_of(row) not in unseen]
        suites = [*map(halved, sample)]
        half = bench.accepted("half", suites, rows)
        hidden = len(rows) - len(seen)
        # The whole suite rejects every program that half of its asserts reject.
        passing = [row for row in rows if half.get(key_of(row))]
        whole = bench.accepted("whole", sample, passing)
        before = bench.programs - hidden - len(passing)
        named = bench.audit("half", suites, seen, half)
        cost = bench.programs - hidden - len(passing)
        found = {name for name, each in named.items() if each["accepts_wrong"]}
        slips = {key[0] for key, accepted in whole.items() if key in unseen and not accepted}
        hits = len(slips & found)
        print(f"{dataset}, seed {seed}: {len(sample)} problems halved, {len(rows)} programs")
        missed = f"; missed: {', '.join(sorted(slips - found))}" if slips - found else ""
        print(f"  weakened, as programs show that the audit does not have: found {share(hits, len(slips))}{missed}")
        print(
            f"  named: {len(found)} of {len(sample)}; programs that the audit ran: {before} and {cost - before} varied"
        )
        failed = hits < AIM * len(slips)
        if strong is not None:
            failed |= beside_strong(bench, strong, sample, rows, passing, whole, unseen, named)
    print(f"  {bench.programs} programs judged in {time.monotonic() - begun:.0f} s")
    return int(failed)


def beside_strong(
    bench: Bench, source: str, sample: list[Problem], rows: list[Row], passing: list[Row], whole: dict[Key, bool],
    unseen: set[Key], named: dict[str, Any],
) -> bool:  # fmt: skip
    """Audit EvalPlus' suites too, print the precision, and return whether the aim is missed."""
    suites = strong_suites(source, sample)
    verdicts = bench.accepted("strong", suites, passing, STRONG_TIME_LIMIT)
    usable = {row["problem_id"] for row in passing if row.get("correct") and verdicts.get(key_of(row))}
    suites = [each for each in suites if each.problem_id in usable]
    if not suites:
        print("  no suite of EvalPlus accepts its reference: no precision")
        return False
    write(bench.directory / "strong.jsonl", map(make_problem_record, suites))
    references = [row for row in rows if row.get("correct") and row["problem_id"] in usable]
    # `vary-tests` refuses references of other problems.
    write(bench.directory / "references.jsonl", references)
    seen = [row for row in passing if row["problem_id"] in usable and key_of(row) not in unseen]
    strongly = bench.audit("strong", suites, seen, verdicts)
    false_alarms = {name for name, each in strongly.items() if each["accepts_wrong"]}
    wrong = {key for key, accepted in verdicts.items() if key[0] in usable and not (accepted and whole.get(key))}
    weak, found = {key[0] for key in wrong}, {name for name in usable if named[name]["accepts_wrong"]}
    right, all_named = len(found & weak), len(found) + len(false_alarms)
    changes = {(row["problem_id"], row["mutant"]): key_of(row) for row in passing if "mutant" in row}
    called = [changes[name, change] for name in usable for change in named[name]["wrong_mutants"]]
    print(f"  {len(usable)} of the problems have suites of EvalPlus that accept the reference; halved suites that are")
    print(f"  weak by those: {len(weak)}; suites named: {len(found)} halved, {len(false_alarms)} of EvalPlus")
    print(f"  precision: of the suites named, weak: {share(right, all_named)}")
    truly = sum(key in wrong for key in called)
    print(f"  of the mutants called wrong, wrong by EvalPlus' suites: {share(truly, len(called))}")
    if false_alarms:
        shown = (f"{name} ({strongly[name]['wrong_mutants'][0]})" for name in sorted(false_alarms))
        print(f"  named of EvalPlus' suites: {'; '.join(shown)}")
    return right < AIM * all_named


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=SOURCES, default="humaneval")
    parser.add_argument("--strong", metavar="FILE", help="EvalPlus' file of the dataset")
    parser.add_argument("--mutants", type=int, default=200, help="of a problem, at most")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--pool", default="0:1", help="BEGIN:STEP, the positions of the problems to sample from")
    parser.add_argument("--part", default="0:1", help="BEGIN:STEP, the positions in the sample")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pool, part = positions(arguments.pool), positions(arguments.part)
    of = (arguments.strong, arguments.mutants, arguments.problems, pool, part, arguments.seed)
    sys.exit(main(arguments.dataset, *of))
