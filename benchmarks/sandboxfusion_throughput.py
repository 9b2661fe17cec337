"""One stock SandboxFusion server, asked by verl's client and by evalrun's gateway: tests a second, and their verdicts.

    .venv/bin/python benchmarks/sandboxfusion_throughput.py --server http://127.0.0.1:8080 --verl DIR

`--verl` is the directory that holds the package `verl` (`pip install --no-deps --target DIR verl==0.9.1 requests`). Of
it only `verl/utils/reward_score/sandbox_fusion` is loaded, by hand: the package itself imports torch. The two sides
take turns on the same server, several rounds each; the gateway is a process of its own, asked over gRPC, and no problem
comes twice, so that its cache does not count. Counted is neither side's start: what each says of itself begins when it
has imported what it needs and, the gateway, found out what the server is.

With `--lone` each round also times calls of `true`: the least that one call of this server takes, and so the most that
anybody who asks it once a program can gain.

With `--server-pid` the CPU seconds of server and client are compared too: on a machine that others use, wall time says
little, and both are bound by CPU on one that nobody does.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import grpc

from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.ready_line import parse_ready_line

PROGRAM = """\
import sys
from collections import defaultdict

def main():
    n = int(input())
    values = list(map(int, input().split()))
    seen = defaultdict(int)
    for value in values:
        seen[value] += 1
    print(max(seen.values()), sum(values) % 1000007{wrong})

main()
"""

VERL = """
import importlib.util, json, logging, sys, threading, time
logging.disable(logging.CRITICAL)
directory, url, seconds = sys.argv[1], sys.argv[2], 10
name = "verl_sandbox_fusion"
path = directory + "/verl/utils/reward_score/sandbox_fusion/__init__.py"
spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[path.rpartition("/")[0]])
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
sys.path.insert(0, directory)
spec.loader.exec_module(module)
problems, at_once = json.loads(sys.stdin.readline())
semaphore = threading.Semaphore(at_once)
print("ready", flush=True)
sys.stdin.readline()
started, used = time.monotonic(), time.process_time()
verdicts = []
for code, tests in problems:
    results, _ = module.check_correctness(
        sandbox_fusion_url=url + "/run_code", in_outs=tests, generation=code, timeout=seconds,
        memory_limit_mb=1024, concurrent_semaphore=semaphore)
    verdicts.append([result is True for result in results])
print(json.dumps([time.monotonic() - started, time.process_time() - used, verdicts]), flush=True)
"""

Problem = tuple[str, dict[str, list[str]]]


def problems_of(count: int, tests: int, seed: int) -> list[Problem]:
    draw = random.Random(seed)
    made = []
    for number in range(count):
        inputs, outputs = [], []
        for _ in range(tests):
            values = [draw.randrange(100) for _ in range(draw.randrange(50, 150))]
            inputs.append(f"{len(values)}\n{' '.join(map(str, values))}\n")
            outputs.append(f"{max(map(values.count, values))} {sum(values) % 1000007}\n")
        wrong = " + (n % 5 == 0)" if number % 3 == 2 else ""
        made.append((PROGRAM.format(wrong=wrong), {"inputs": inputs, "outputs": outputs}))
    return made


def rights_of(number: int, problem: Problem) -> list[bool]:
    """Return which tests the program passes by construction."""
    sizes = [int(text.partition("\n")[0]) for text in problem[1]["inputs"]]
    return [number % 3 != 2 or size % 5 != 0 for size in sizes]


def faults(verdicts: list[list[bool]], truth: list[list[bool]]) -> int:
    pairs = zip(verdicts, truth, strict=True)
    return sum(said != right for given, wanted in pairs for said, right in zip(given, wanted, strict=True))


class Cost(NamedTuple):
    """Time and CPU that one side took, and its verdicts."""

    seconds: float
    client_cpu: float
    """CPU seconds of verl's process, or of the gateway and this process together."""
    server_cpu: float
    verdicts: list[list[bool]]


def by_verl(python: str, directory: str, server: str, pid: int | None, problems: list[Problem], at_once: int) -> Cost:
    with subprocess.Popen(
        [python, "-c", VERL, directory, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([problems, at_once]) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        before = cpu_seconds(pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        said = process.stdout.readline()
        after = cpu_seconds(pid)
    if not said:
        raise SystemExit("verl's client failed: see above")
    seconds, client, verdicts = json.loads(said)
    return Cost(seconds, client, after - before, verdicts)


def by_gateway(server: str, pid: int | None, problems: list[Problem], *, lone: bool) -> Cost:
    command = [sys.executable, "-m", "evalrun_judge", f"--sandbox={server}", "--backend=SandboxFusion"]
    process = subprocess.Popen(
        [*command, "--required-level=none", "--exit-with-parent", "--log-level=warning"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = parse_ready_line(process.stdout.readline())
        if address is None:
            raise SystemExit("the gateway did not start: see its stderr")
        with grpc.insecure_channel(address.removeprefix("grpc://")) as channel:
            stub = judge_pb2_grpc.JudgeServiceStub(channel)
            # The first verdict shows that the gateway has found its sandbox.
            stub.Judge(request_of(problems_of(1, 1, seed=-1)[0]), timeout=120)
            before, client = cpu_seconds(pid), cpu_seconds(process.pid) + time.process_time()
            started = time.monotonic()
            if lone:
                verdicts = [stub.Judge(request_of(problem)).verdict for problem in problems]
            else:
                calls = [stub.Judge.future(request_of(problem)) for problem in problems]
                verdicts = [call.result().verdict for call in calls]
            seconds = time.monotonic() - started
            server_cpu, client = cpu_seconds(pid) - before, cpu_seconds(process.pid) + time.process_time() - client
            level = verdicts[0].containment_level
    finally:
        process.terminate()
        process.communicate(timeout=60)
    print(f"    containment: {level}")
    said = [[test.status == judge_pb2.TEST_STATUS_SUCCESS for test in verdict.tests] for verdict in verdicts]
    return Cost(seconds, client, server_cpu, said)


def request_of(problem: Problem) -> judge_pb2.JudgeRequest:
    code, tests = problem
    cases = [
        judge_pb2.StdioTest(input=given, expected_output=wanted)
        for given, wanted in zip(tests["inputs"], tests["outputs"], strict=True)
    ]
    return judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text=f"```python\n{code}```", language="python"),
        stdio=judge_pb2.StdioTests(tests=cases),
        limits=judge_pb2.Limits(time_seconds=10, memory_mib=1024, output_kib=1024),
    )


def cpu_seconds(pid: int | None) -> float:
    """Return the CPU seconds of a process and of its reaped children so far; 0 without a process."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def bare_call_seconds(server: str, count: int) -> float:
    """Return the average seconds of a call that runs nothing."""
    body = json.dumps({"language": "bash", "code": "true"}).encode()
    request = urllib.request.Request(f"{server}/run_code", body, {"Content-Type": "application/json"})
    started = time.monotonic()
    for _ in range(count):
        with urllib.request.urlopen(request, timeout=60) as answer:
            if json.load(answer)["status"] != "Success":
                raise SystemExit("a call that runs nothing failed")
    return (time.monotonic() - started) / count


def median(numbers: list[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--server-pid", type=int)
    parser.add_argument("--verl", required=True)
    parser.add_argument("--python", default=sys.executable, help="interpreter with requests, for verl's client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problems", type=int, default=32, help="a round; with few, the last call's tail weighs")
    parser.add_argument("--tests", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--lone", action="store_true", help="the gateway gets one program at a time, as verl does")
    parser.add_argument("--at-once", type=int, default=4, help="verl's semaphore: 4 is its best on 2 CPUs")
    chosen = parser.parse_args()
    for tests in chosen.tests:
        ratios, cpu_ratios = [], []
        for turn in range(chosen.rounds):
            problems = problems_of(chosen.problems, tests, seed=turn)
            theirs = by_verl(
                chosen.python, chosen.verl, chosen.server, chosen.server_pid, problems, chosen.at_once
            )  # fmt: skip
            ours = by_gateway(chosen.server, chosen.server_pid, problems, lone=chosen.lone)
            total = tests * len(problems)
            truth = [rights_of(number, problem) for number, problem in enumerate(problems)]
            their_faults, our_faults = faults(theirs.verdicts, truth), faults(ours.verdicts, truth)
            ratios.append(theirs.seconds / ours.seconds)
            speeds = f"verl {total / theirs.seconds:.1f} tests/s, gateway {total / ours.seconds:.1f}"
            print(f"{tests:4} tests each: {speeds}, "
                  f"ratio {ratios[-1]:.1f}, wrong of {total}: {their_faults}, {our_faults}", flush=True)  # fmt: skip
            if chosen.lone:
                each, bare = len(problems), bare_call_seconds(chosen.server, len(problems))
                print(f"    a program: verl {1000 * theirs.seconds / each:.0f} ms, gateway "
                      f"{1000 * ours.seconds / each:.0f}; a bare call {1000 * bare:.0f}: one call a program gains "
                      f"at most {theirs.seconds / each / bare:.1f}", flush=True)  # fmt: skip
            if chosen.server_pid is not None:
                cpu_ratios.append((theirs.server_cpu + theirs.client_cpu) / (ours.server_cpu + ours.client_cpu))
                print(f"    CPU a test, server + client: verl {1000 * theirs.server_cpu / total:.1f} + "
                      f"{1000 * theirs.client_cpu / total:.1f} ms, gateway {1000 * ours.server_cpu / total:.2f} + "
                      f"{1000 * ours.client_cpu / total:.2f} ms, ratio {cpu_ratios[-1]:.1f}", flush=True)  # fmt: skip
        by_cpu = f", by CPU {median(cpu_ratios):.1f}" if cpu_ratios else ""
        print(f"{tests:4} tests a problem: median ratio {median(ratios):.1f}{by_cpu}")


if __name__ == "__main__":
    main()
