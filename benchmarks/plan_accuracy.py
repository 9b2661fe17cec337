"""How close `evalrun plan` comes: the wall time that it prints of three runs beside what they then take.

    .venv/bin/python benchmarks/plan_accuracy.py

Each run is planned from a small one (`maxProblems`) of the same kind, with `--like`. Recorded answers come from a
server that takes as long for each as a model of its speed would. In the first run the server decides how long it takes,
in the next two, with four answers to a problem, the judge; the last draws two answers to each problem of two datasets.
Aim: within 25 %.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from evalrun_runtime.ready_line import parse_ready_line

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("EVALRUN_TEST_DATA", ROOT.parent / "shared" / "data"))
EVALRUN = Path(sys.executable).with_name("evalrun")
AIM = 0.25
SAMPLES = 4
"""Number of recorded answers per problem. No two are alike, so that none is judged from the cache."""


@dataclass(frozen=True)
class Case:
    """A run to plan, and the small run that the plan is derived from."""

    name: str
    datasets: tuple[str, ...]
    small: int
    """Problems of each dataset in the small run."""
    samples: int
    seconds_a_token: float
    at_once: int
    """Answers that the server gives at once; 0: no limit."""


CASES = (
    Case("generating decides", ("humaneval",), 30, 1, 0.005, 8),
    Case("judging decides, humaneval x 4", ("humaneval",), 40, 4, 0.0, 0),
    Case("judging decides, mbpp x 4", ("mbpp",), 200, 4, 0.0, 0),
    Case("two datasets, two answers", ("humaneval", "mbpp"), 40, 2, 0.003, 16),
)


def recorded(directory: Path) -> dict[str, tuple[Path, Path]]:
    """Return problems and recorded answers of both datasets; MBPP's are its reference programs."""
    humaneval = DATA / "humaneval" / "HumanEval.jsonl.gz"
    mbpp = DATA / "mbpp" / "mbpp.jsonl.gz"
    answers = {"humaneval": directory / "humaneval-answers.jsonl", "mbpp": directory / "mbpp-answers.jsonl"}
    with gzip.open(DATA / "completions" / "humaneval_gpt-4_simple_a.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    _write(
        answers["humaneval"],
        [
            {**row, "dataset": "humaneval", "sample": n, "completion": f"{row['completion'].rstrip()}\n# {n}\n"}
            for row in rows
            for n in range(SAMPLES)
        ],
    )
    with gzip.open(mbpp, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    _write(
        answers["mbpp"],
        [
            {
                "task_id": row["task_id"],
                "dataset": "mbpp",
                "sample": n,
                "completion": f"```python\n{row['code']}\n# {n}\n```",
            }
            for row in rows
            for n in range(SAMPLES)
        ],
    )
    return {"humaneval": (humaneval, answers["humaneval"]), "mbpp": (mbpp, answers["mbpp"])}


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def server(case: Case, files: dict[str, tuple[Path, Path]]) -> Iterator[str]:
    """Serve a case's recorded answers. Yield the address."""
    command = [str(EVALRUN), "serve", "recorded", "--model=recorded", f"--max-concurrency={case.at_once}"]
    command += [f"--latency-seconds-per-token={case.seconds_a_token}", "--exit-with-parent", "--log-level=error"]
    for dataset in case.datasets:
        command += [f"--problems={files[dataset][0]}", f"--responses={files[dataset][1]}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or (address := parse_ready_line(process.stdout.readline())) is None:
            raise SystemExit(f"{' '.join(command)} did not get ready")
        try:
            yield address
        finally:
            process.terminate()


def spec(case: Case, address: str, files: dict[str, tuple[Path, Path]], problems: int | None) -> str:
    """Return an EvalRun as JSON, which is valid YAML."""
    bound = {} if problems is None else {"maxProblems": problems}
    datasets = [{"name": name, "source": str(files[name][0]), **bound} for name in case.datasets]
    protocol = {"name": "EVAL@k", "samples": case.samples, "temperature": "0.8", "k": [1]} if case.samples > 1 else {}
    return json.dumps(
        {
            "apiVersion": "evalrun.dev/v1alpha1",
            "kind": "EvalRun",
            "metadata": {"name": "planned"},
            "spec": {
                "model": {"path": "recorded"},
                "endpoints": [{"url": address}],
                "datasets": datasets,
                "protocol": protocol,
            },
        }
    )


def run(file: Path, output: Path) -> float:
    """Run an EvalRun on this machine. Return the seconds from its start to its end."""
    command = [str(EVALRUN), "run", "--local", str(file), "--output", str(output)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
    info = json.loads((output / "run_info.json").read_text())
    started, finished = (datetime.fromisoformat(info[key]) for key in ("started_at", "ended_at"))
    return (finished - started).total_seconds()


def planned(file: Path, like: Path) -> tuple[float, str]:
    """Return the wall seconds that `evalrun plan` prints, and the part that decides them."""
    command = [str(EVALRUN), "plan", str(file), "--local", "--like", str(like)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"wall time: ([\d.]+) s \((\w+) decides it\)", text)
    if found is None:
        raise SystemExit(text)
    return float(found[1]), found[2]


def main() -> None:
    if not DATA.exists():
        raise SystemExit(f"{DATA} is not here: set EVALRUN_TEST_DATA")
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    print(f"{'run':32} {'small run s':>11} {'planned s':>9}  {'decides':10} {'measured s':>10}  planned / measured")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = recorded(directory)
        for number, case in enumerate(CASES):
            with server(case, files) as address:
                small, whole = directory / f"small-{number}.yaml", directory / f"whole-{number}.yaml"
                small.write_text(spec(case, address, files, case.small))
                whole.write_text(spec(case, address, files, None))
                before = run(small, directory / f"small-{number}")
                expected, decides = planned(whole, directory / f"small-{number}")
                took = run(whole, directory / f"whole-{number}")
            ratio = expected / took
            within = "" if abs(ratio - 1) <= AIM else "   missed"
            print(f"{case.name:32} {before:11.1f} {expected:9.0f}  {decides:10} {took:10.1f}  {ratio:.2f}{within}")


if __name__ == "__main__":
    main()
