"""Prepare and audit synthetic training splits: seconds and memory by size, beside the aims of 2 minutes and 1 GB.

  python benchmarks/data_preparation.py                        13,328 problems with 20 tests each
  python benchmarks/data_preparation.py --growth               1,000 to 100,000 problems; --keep: for growth_plot.py
  python benchmarks/data_preparation.py --gigabytes 10         13,328 problems with so much text in their tests

Each size is prepared by the command itself, in a process of its own, with 650 benchmark problems to compare with. The
peer is a plain pass over the same file: what reading its JSON alone takes.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from growth_plot import keep

PROBLEMS = 13_328
TESTS = 20
BENCHMARK_PROBLEMS = 650
STATEMENT_WORDS = 250
"""About 1,700 characters: CodeContests' median."""
SECONDS_AIM = 120.0
MEMORY_AIM_MIB = 1024.0
GROWTH = (1_000, 3_000, 10_000, 30_000, 100_000)


def vocabulary(seed: int) -> list[str]:
    chance = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    weights = [26 - index for index in range(26)]
    return ["".join(chance.choices(letters, weights, k=chance.randint(2, 10))) for _ in range(20_000)]


def rows(dataset: str, count: int, test_characters: int, seed: int) -> Iterator[str]:
    """Yield records whose words are drawn as in a natural language, in which few words are frequent."""
    chance, words = random.Random(seed), vocabulary(0)
    frequencies = [1 / (rank + 3) for rank in range(len(words))]
    for number in range(count):
        prompt = " ".join(chance.choices(words, frequencies, k=STATEMENT_WORDS))
        digits = str(chance.getrandbits(256))
        inputs = [
            (f"{number} {index} " + digits * (1 + test_characters // len(digits)))[:test_characters]
            for index in range(TESTS)
        ]
        truth = {"inputs": inputs, "outputs": [str(number + index) for index in range(TESTS)]}
        yield (
            json.dumps({"dataset": dataset, "problem_id": f"p{number}", "prompt": prompt, "ground_truth": truth}) + "\n"
        )


def write(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(lines)


def measured(directory: Path, problems: int, test_characters: int) -> dict[str, float]:
    write(directory / "train.jsonl", rows("train", problems, test_characters, 1))
    write(directory / "test.jsonl", rows("test", BENCHMARK_PROBLEMS, 30, 2))
    roles = {"train": "train", "test": "test"}
    plan = {"datasets": [{"name": name, "source": f"{name}.jsonl", "role": role} for name, role in roles.items()]}
    (directory / "plan.yaml").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "evalrun_data.governance", "prepare", str(directory / "plan.yaml")]
    read = time.perf_counter()
    with (directory / "train.jsonl").open(encoding="utf-8") as stream:
        for line in stream:
            json.loads(line)
    began = time.perf_counter()
    child = subprocess.Popen([*command, "--output", str(directory / "out")], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    ended = time.perf_counter()
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"the preparation failed with exit code {os.waitstatus_to_exitcode(status)}")
    size = (directory / "train.jsonl").stat().st_size
    return {
        "problems": problems,
        "megabytes": round(size / 1e6, 1),
        "seconds": round(ended - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "cpu_ms_per_problem": round(1000 * (usage.ru_utime + usage.ru_stime) / problems, 2),
        "json_seconds": round(began - read, 1),
        "max_rss_mib": round(usage.ru_maxrss / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", action="store_true", help="measure 1,000 to 100,000 problems")
    parser.add_argument("--gigabytes", type=float, help="text of all tests together")
    parser.add_argument("--directory", type=Path, help="where the files are made; twice their size is needed")
    parser.add_argument("--keep", type=Path, help="file that keeps the figures for growth_plot.py")
    given = parser.parse_args()
    characters = int(given.gigabytes * 1e9 / PROBLEMS / TESTS) if given.gigabytes else 30
    found = []
    for problems in GROWTH if given.growth else (PROBLEMS,):
        with tempfile.TemporaryDirectory(dir=given.directory) as directory:
            found.append(measured(Path(directory), problems, characters))
        print("  ".join(f"{name} {value:,}" for name, value in found[-1].items()), flush=True)
        keep(given.keep, Path(__file__).name, problems, found[-1])
    if not given.growth:
        print(f"memory: {found[0]['max_rss_mib']:.0f} of {MEMORY_AIM_MIB:.0f} MiB")
        if not given.gigabytes:
            print(f"time: {found[0]['seconds']:.0f} of {SECONDS_AIM:.0f} s")


if __name__ == "__main__":
    main()
