"""Reference solutions of published rows, judged as answers: which are not accepted, and why.

    .venv/bin/python benchmarks/published_references.py FILE [--packages DIR] [--limit N]

FILE holds rows as published, as JSON lines (also gzipped) or as one object of rows by id: `MbppPlus.jsonl`,
`HumanEvalPlus.jsonl`, the hub's rows of BigCodeBench. Each reference is submitted as the completion of its prompt.
Prints how many are accepted, how many of them in the program's process, and each other one with its reason. None of the
data is part of this repository.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any


def read_rows(file: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return list(json.loads(text).values())
    return list(map(json.loads, text.splitlines()))


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def main() -> int:
    """Judge the references, and print which are not accepted. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    rows = read_rows(given.file)[: given.limit]
    answers = [{"task_id": row["task_id"], "completion": row["canonical_solution"], "mode": "append"} for row in rows]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        command = [
            str(Path(sys.executable).parent / "evalrun"), "judge",
            "--problems", write_lines(place / "problems.jsonl", rows),
            "--responses", write_lines(place / "answers.jsonl", answers), "--output", place / "out",
            *(["--packages", given.packages] if given.packages else []),
        ]  # fmt: skip
        started = time.monotonic()
        # Status 3 means that some references were not judged, which this program prints itself.
        if (status := subprocess.run(command, stdout=subprocess.DEVNULL).returncode) not in (0, 3):
            return status
        seconds = time.monotonic() - started
        found = [json.loads(line) for line in (place / "out/results.jsonl").read_text().splitlines()]
    accepted = [row for row in found if row["accepted"]]
    causes = Counter(row["forgeable_cause"] for row in accepted if row["forgeable_cause"])
    print(f"{given.file.name}: {len(accepted)} of {len(rows)} references accepted in {seconds:.0f} s")
    print(f"  in the program's process: {dict(causes)}")
    for row in found:
        if not row["accepted"]:
            why = row["not_judged_reason"] or _describe_failure(row)
            print(f"  {row['problem_id']}: {row['final_status']}: {why}")
    return 0


def _describe_failure(row: dict[str, Any]) -> str:
    failed: dict[str, Any] = next((test for test in row["tests"] if test["status"] != "success"), {})
    return " ".join(str(failed.get("reason") or failed.get("status")).split())[:300]


if __name__ == "__main__":
    raise SystemExit(main())
