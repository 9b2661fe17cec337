"""The judge's verdicts beside the plain interpreter's: programs of `tests/shapes`, problems as EvalPlus has them, and
ordinary programs that read stdin and write stdout.

    .venv/bin/python benchmarks/verdict_shapes.py [--all]

Prints a line for each class: programs, how many of both verdicts plain CPython gives, how many agree, are not judged,
or differ, and the rounds of calls that they took; then each that does not agree (`--all`: every one). Ends with
status 1 where one differs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from builders.judge import ordinary_programs
from builders.judge.function_tests import WarmForks
from builders.judge.sandbox import run_one, started
from builders.judge.verdict_shapes import PlainInterpreter, judged, shapes

from evalrun_executor.executor import ExecutorPlan


async def stdio_programs() -> list[tuple[str, str, str]]:
    """Return name, the plain interpreter's verdict and the sandbox's, of each ordinary program.

    A program is accepted if it prints the output that the table wants and ends with status 0.
    """
    found = []
    async with started(ExecutorPlan(slots=1, queue=8, allow_uncontained=True)) as executor:
        for name, (code, stdin, wanted) in (*ordinary_programs.PROGRAMS.items(), *ordinary_programs.ENDING.items()):
            run = await run_one(executor, code, stdin)
            ends = ordinary_programs.plainly(code, stdin), (run.exit_code, run.stdout)
            plain, said = ("accept" if end == (0, wanted) else "reject" for end in ends)
            found.append((name, plain, said))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print every program")
    everything = parser.parse_args().all
    forks, interpreter = WarmForks(), PlainInterpreter()
    rows: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    lines = []
    for shape in shapes():
        plain, (said, why, batches) = interpreter.judge(shape), judged(shape, forks)
        rows[shape.kind].append((plain, said, batches))
        if everything or plain != said:
            lines.append(f"{shape.kind:11} {shape.name:55} CPython {plain:7} judge {said:10} {why[:120]}")
    forks.close()
    interpreter.close()
    for name, plain, said in asyncio.run(stdio_programs()):
        rows["stdio"].append((plain, said, 1))
        if everything or plain != said:
            lines.append(f"{'stdio':11} {name:55} CPython {plain:7} judge {said:10}")
    print(f"{'class':11} programs  accept  reject  agree  not judged  differ  rounds")
    for kind, found in rows.items():
        accepted = sum(plain == "accept" for plain, _, _ in found)
        agree = sum(plain == said for plain, said, _ in found)
        apart = sum(said == "not judged" for _, said, _ in found)
        print(
            f"{kind:11} {len(found):8}  {accepted:6}  {len(found) - accepted:6}  {agree:5}  {apart:10}  "
            f"{len(found) - agree - apart:6}  {sum(batches for _, _, batches in found):6}"
        )
    print("\n".join(lines))
    sys.exit(any(plain != said != "not judged" for found in rows.values() for plain, said, _ in found))


if __name__ == "__main__":
    main()
