"""GPU seconds that a sequential gate saves: the pipeline on one GPU, stopped by its gate and run to its end.

    python3 benchmarks/sequential_gpu.py            one GPU; needs what rollout_gpu.py needs
    python3 benchmarks/sequential_gpu.py --tiny     a rehearsal on a CPU, with a pretended GPU

The model has random weights, so its answers are noise that costs what real answers cost; the verdicts are those
recorded for real models' HumanEval answers (EVALRUN_TEST_DATA), the same for each of a problem's 10 samples. The
baseline is one recorded model, the candidate another (`--candidate`), or the baseline itself: an equal run. Aims: 40 %
of the GPU seconds after the replicas serve are saved, and the decision is that of the whole run.
"""

import argparse
import asyncio
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import random_model
from rollout_gpu import REAL, SOURCES, TINY, Size, environment, ray_cluster, started, until, write_problems

sys.path[:0] = [str(source) for source in SOURCES]

COMPLETIONS = Path(os.environ.get("EVALRUN_TEST_DATA", "../shared/data")) / "completions"
BASELINE = "humaneval_gpt-4_simple_a.jsonl.gz"
CANDIDATES = (BASELINE, "humaneval_ollama-qwen2.5-coder_7b.jsonl.gz", "humaneval_ollama-codellama_7b.jsonl.gz")
SAMPLES = 10


def recorded(file: str, most: int) -> list[bool]:
    """Return a recorded model's verdicts, in the order of the problems."""
    with gzip.open(COMPLETIONS / file, "rt", encoding="utf-8") as lines:
        rows = sorted(map(json.loads, lines), key=lambda row: int(row["task_id"].rpartition("/")[2]))
    return [bool(row["recorded"]) for row in rows][:most]


def serve_judge(accepted: list[bool]) -> None:
    """Serve recorded verdicts until the process is ended. Print the address. Needs the aggregator's interpreter."""
    from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer, make_scripted_verdict
    from evalrun_proto.judge.v1 import judge_pb2

    def verdict(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        task = int(request.check.entry_point.split("_")[1])
        request.submission.text = "accept" if accepted[task] else "wrong"
        return make_scripted_verdict(request)

    async def serve() -> None:
        # The variable keeps the server alive: a server without a reference stops.
        server = FakeJudgeServer(FakeJudge(verdict))
        print(f"judge ready on {await server.start()} ", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


def write_baseline(directory: Path, accepted: list[bool]) -> None:
    """Write the outputs of a run with these verdicts, one answer per problem, in the format of evalrun."""
    from evalrun_proto.judge.v1 import judge_pb2 as pb
    from evalrun_results.metrics.accumulator import MetricOptions
    from evalrun_results.outputs.qa_logs import QaOptions
    from evalrun_results.outputs.writer import OutputPlan, write_outputs
    from evalrun_results.samples import SampleResult

    def rows() -> "list[SampleResult]":
        found = []
        for number, good in enumerate(accepted):
            status = pb.TEST_STATUS_SUCCESS if good else pb.TEST_STATUS_WRONG_ANSWER
            verdict = pb.Verdict(
                final_status=pb.FINAL_STATUS_SUCCESS if good else pb.FINAL_STATUS_WRONG_ANSWER,
                judged=True,
                accepted=good,
                pass_ratio=float(good),
                tests=[pb.TestResult(status=status, ran=True)],
            )
            found.append(
                SampleResult(
                    dataset="bench", problem_id=f"bench/{number}", sample=0, turn=0, repeat=0, prompt="", response="",
                    ground_truth={}, difficulty="", model="recorded", finish_reason="stop", prompt_tokens=1,
                    output_tokens=1, gen_seconds=1.0, started_at=1.0, judged_at=2.0, verdict=verdict,
                    not_judged_reason="", mode="auto", language="python",
                )
            )  # fmt: skip
        return found

    write_outputs(rows(), str(directory), OutputPlan({}, MetricOptions(), QaOptions(0.0, 1)))


def run_config(directory: Path, model: Path, size: Size, margin: str, *, stop: bool) -> Path:
    """Write the run configuration: SAMPLES answers per problem on one GPU, with a gate. Return its path."""
    spec = {
        "model": {"path": str(model)},
        "datasets": [{"name": "bench", "source": str(directory / "problems.jsonl"), "promptFormat": "Completion"}],
        "protocol": {
            "name": "EVAL@k", "samples": SAMPLES, "k": [1], "temperature": "0.8", "maxNewTokens": size.new_tokens,
            "seed": 1,
        },
        "rollout": {
            "engine": "vllm", "replicas": 1, "tensorParallel": 1, "gpusPerNode": 1, "dtype": size.dtype,
            "enforceEager": size.eager, "maxNumSeqs": size.max_num_seqs, "promptLength": size.prompt_length,
            "gpuMemoryUtilization": size.utilization,
        },
        "gates": [
            {
                "baseline": str(directory / "main"), "dataset": "bench", "maxRegression": margin, "sequential": True,
                "stopEarly": stop,
            }
        ],
    }  # fmt: skip
    order = {"schema": 1, "run": "bench", "created": "2026-01-01T00:00:00+00:00", "spec": spec}
    path = directory / "work-order.json"
    path.write_text(json.dumps({**order, "output_dir": str(directory / "out")}))
    return path


def run(
    model: Path, size: Size, python: str, candidate: list[bool], baseline: list[bool], margin: str, *, stop: bool
) -> dict[str, object]:
    """Run until the outputs are written. Return the gate's decision, and the GPU seconds from the first request on."""
    from rollout_gpu import prompts

    with tempfile.TemporaryDirectory(prefix="evalrun-gate-") as name:
        directory, variables = Path(name), environment(size)
        texts = prompts(replace(size, tasks=len(candidate), variants=1))
        write_problems(directory / "problems.jsonl", texts)
        verdicts = directory / "verdicts.json"
        verdicts.write_text(json.dumps({"baseline": baseline, "candidate": candidate, "main": str(directory / "main")}))
        helper = [python, __file__, "--helper", str(verdicts)]
        subprocess.run([*helper, "--helps", "baseline"], env=variables, check=True)
        judge_log = directory / "judge.log"
        order = run_config(directory, model, size, margin, stop=stop)
        log, output = directory / "aggregator.log", directory / "rollout.log"
        ledger_file = directory / "ledger.sqlite"
        serve = [python, "-m", "evalrun_aggregator", f"--work-order={order}", f"--ledger={ledger_file}"]
        with (
            ray_cluster(directory, 1, variables) as address,
            started([*helper, "--helps", "judge"], judge_log, variables) as judge,
        ):
            until(lambda: " ready on " in judge_log.read_text(), 60, judge, judge_log)
            serve += [f"--judge={judge_log.read_text().partition(' ready on ')[2].split()[0]}", "--judge-in-flight=256"]
            with started(serve, log, variables) as aggregator:
                until(lambda: " ready on " in log.read_text(), 60, aggregator, log)
                ledger = log.read_text().partition(" ready on ")[2].split()[0]
                generate = [sys.executable, "-m", "evalrun_generator.rollout", f"--work-order={order}"]
                generate += [f"--ledger={ledger}", f"--ray-address={address}", "--report-seconds=1"]
                generate += [f"--engine-env={variable}" for variable in size.engine_environment]
                with started(generate, output, variables) as generator:
                    if generator.wait() != 0:
                        raise SystemExit(f"the generator failed: {output.read_text()[-3000:]}")
                until(lambda: (directory / "out" / "summary.json").exists(), 120, aggregator, log)
        summary = json.loads((directory / "out" / "summary.json").read_text())
        with sqlite3.connect(ledger_file) as connection:
            (first,) = connection.execute("SELECT min(started_at) FROM completions").fetchone()
            holders = connection.execute("SELECT worker, seconds FROM gpu_seconds").fetchall()
        spans = [(float(each.split("\t")[2]), seconds) for each, seconds in holders if each.count("\t") == 2]
        serving = sum(max(0.0, begun + seconds - max(first, begun)) for begun, seconds in spans)
        gate = summary["gate"]
        return {
            "decision": gate["decision"],
            "after": gate["decided_after"],
            "of": gate["of_problems"],
            "seconds": serving,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on a CPU")
    parser.add_argument("--candidate", choices=CANDIDATES, help="one of the recorded models; default: each")
    parser.add_argument("--margin", default="0.05", help="maxRegression; five points are what 164 problems can decide")
    parser.add_argument("--model", type=Path, help="directory with a model that was made before")
    parser.add_argument("--aggregator-python", default=sys.executable, help="an interpreter that has its requirements")
    parser.add_argument("--helper", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--helps", choices=("judge", "baseline"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.helper is not None:
        told = json.loads(arguments.helper.read_text())
        if arguments.helps == "judge":
            serve_judge(told["candidate"])
        else:
            write_baseline(Path(told["main"]), told["baseline"])
        return 0
    size = TINY if arguments.tiny else REAL
    most = 24 if arguments.tiny else 164
    same = True
    with tempfile.TemporaryDirectory(prefix="evalrun-model-") as made:
        model = arguments.model or Path(made)
        if arguments.model is None:
            make = [sys.executable, random_model.__file__, str(model), *(["--tiny"] if arguments.tiny else [])]
            subprocess.run(make, env=environment(size), check=True, stdout=sys.stderr)
        baseline = recorded(BASELINE, most)
        for candidate in (arguments.candidate,) if arguments.candidate else CANDIDATES:
            verdicts = recorded(candidate, most)
            early, whole = (
                run(model, size, arguments.aggregator_python, verdicts, baseline, arguments.margin, stop=stop)
                for stop in (True, False)
            )
            saved = 1 - float(str(early["seconds"])) / float(str(whole["seconds"]))
            same = same and (early["decision"], early["after"]) == (whole["decision"], whole["after"])
            print(
                f"{candidate}: {early['decision']} after {early['after']} of {early['of']} problems; GPU seconds after "
                f"the replica served {early['seconds']:.1f} of {whole['seconds']:.1f}: {saved:.0%} saved; whole run: "
                f"{whole['decision']} after {whole['after']}",
                flush=True,
            )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
