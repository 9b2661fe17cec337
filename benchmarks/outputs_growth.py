"""How metrics and outputs grow with the results: synthetic results, no ledger, no network.

Each step starts a fresh process that writes a whole output directory and prints items/s, CPU seconds, peak memory and
the size on disk; beside it the same stream through the metrics alone. `problems` tells how much of it is kept: the
peak must follow the problems, not the results. `row s`: CPU seconds of the thread that makes the rows, which bound the
outputs from below where another core writes the row groups. Figures of one machine: compare steps, not machines.

    .venv/bin/python benchmarks/outputs_growth.py [--results 200000] [--tests 10] [--directory DIR]
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.results.samples import compute_metrics

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, write_outputs
from evalrun_results.samples import SampleResult

PROBLEMS = (200, 13_000)
"""HumanEval's size, and that of the CodeContests train split."""
RESPONSE = "```python\ndef solve(values):\n    return sorted(values)\n```\n" * 12
"""About 700 bytes: an answer of 200 tokens."""
FINALS = (pb.FINAL_STATUS_SUCCESS, pb.FINAL_STATUS_WRONG_ANSWER, pb.FINAL_STATUS_RUNTIME_ERROR, pb.FINAL_STATUS_TIMEOUT)
TESTS = (pb.TEST_STATUS_SUCCESS, pb.TEST_STATUS_WRONG_ANSWER, pb.TEST_STATUS_RUNTIME_ERROR, pb.TEST_STATUS_TIMEOUT)


def stored_verdicts(tests: int) -> list[bytes]:
    """Return one serialised verdict for each final status, as a ledger holds them."""
    text = pb.CutText(text="4 8 15 16 23 42\n" * 6, full_length=96)
    return [
        pb.Verdict(
            final_status=final,
            judged=True,
            accepted=final == pb.FINAL_STATUS_SUCCESS,
            pass_ratio=float(final == pb.FINAL_STATUS_SUCCESS),
            code=RESPONSE,
            extraction=pb.EXTRACTION_METHOD_TAGGED_BLOCK,
            containment_level="full",
            tests=[
                pb.TestResult(
                    case_index=index, status=status, ran=True, input=text, expected_output=text, stdout=text,
                    exit_code=0, duration=0.2, cpu_time=0.1,
                )
                for index in range(tests)
            ],
        ).SerializeToString()
        for final, status in zip(FINALS, TESTS, strict=True)
    ]  # fmt: skip


def results(count: int, problems: int, tests: int) -> Iterator[SampleResult]:
    """Yield results one by one, with verdicts parsed from bytes as in the aggregator."""
    verdicts, chance = stored_verdicts(tests), random.Random(0)
    for item in range(count):
        sample, problem = divmod(item, problems)
        yield SampleResult(
            dataset="synthetic",
            problem_id=f"problem-{problem}",
            sample=sample,
            turn=0,
            repeat=0,
            prompt="Sort the numbers.\n" * 20,
            response=RESPONSE,
            ground_truth={"inputs": ["3 1 2\n"], "outputs": ["1 2 3\n"]},
            difficulty="easy",
            model="synthetic-7b",
            finish_reason="stop",
            prompt_tokens=120,
            output_tokens=chance.randrange(20, 400),
            gen_seconds=chance.random() * 9,
            started_at=1e9,
            judged_at=1e9 + item * 0.01,
            verdict=pb.Verdict.FromString(chance.choice(verdicts)),
            not_judged_reason="",
            mode="auto",
            language="python",
        )


def measure(step: str, count: int, problems: int, tests: int, directory: Path) -> dict[str, float]:
    before, thread_before, started = time.process_time(), time.thread_time(), time.perf_counter()
    stream = results(count, problems, tests)
    if step == "stream":
        for _ in stream:
            pass
    elif step == "metrics":
        compute_metrics(stream, MetricOptions(gpu_seconds=1000.0))
    else:
        write_outputs(stream, str(directory), OutputPlan({}, MetricOptions(gpu_seconds=1000.0), QaOptions(0.8, 2048)))
    return {
        "items_per_second": count / (time.perf_counter() - started),
        "cpu_seconds": time.process_time() - before,
        "row_seconds": time.thread_time() - thread_before,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "disk_mib": sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=200_000)
    parser.add_argument("--tests", type=int, default=10, help="tests a result")
    parser.add_argument("--directory", type=Path, default=None, help="where to write (a temporary directory)")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step, count, problems = given.step
        print(json.dumps(measure(step, int(count), int(problems), given.tests, given.directory)))
        return
    titles = ("results", "problems", "items/s", "CPU s", "row s", "peak MiB", "disk MiB")
    print(
        f"{'step':8} "
        + " ".join(f"{title:>{width}}" for title, width in zip(titles, (9, 9, 10, 8, 8, 9, 9), strict=True))
    )
    for count in (given.results // 10, given.results):
        for step, problems in [("stream", PROBLEMS[0]), *((s, p) for s in ("metrics", "outputs") for p in PROBLEMS)]:
            directory = Path(tempfile.mkdtemp(prefix="outputs-growth-", dir=given.directory))
            command = [sys.executable, __file__, "--step", step, str(count), str(problems)]
            command += ["--tests", str(given.tests), "--directory", str(directory)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            shutil.rmtree(directory)
            print(
                f"{step:8} {count:9} {problems:9} {found['items_per_second']:10.0f} {found['cpu_seconds']:8.1f} "
                f"{found['row_seconds']:8.1f} {found['peak_mib']:9.0f} {found['disk_mib']:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
