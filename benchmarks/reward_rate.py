"""Rewards a second, from 1 to 1,024 requests at once: the trainers' client beside verl's, on the same sandbox server.

    .venv/bin/python benchmarks/reward_rate.py [--server stock|http://127.0.0.1:8080] [--at-once 1,16,1024]

Both clients ask in closed loops, so many requests in flight at any time; every program is another one, so nothing is
remembered. verl's is `verl.utils.reward_score.sandbox_fusion` 0.9.1, loaded by hand in the environment of
`make setup-gen-cpu`, and posts each test to `/run_code`. Ours goes through the reward service and the judge, as a
trainer's would. Without `--server` both use evalrun-sandbox, which has SandboxFusion's API too; with it, that server is
the backend of both; `stock` starts the tests' double of a stock server, which runs each call at once, as the stock one
does. Wrong rewards are counted against what each program does by construction; a server that fails calls gives them
sooner, so the last column compares the right ones a second alone.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from evalrun_cli.local.processes import ServiceProcess
from evalrun_trainers.client import RewardClient
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_sample

ROOT = Path(__file__).resolve().parents[1]
TESTS = 4
LEAST, PER_PLACE = 60, 1
VERL = """
import importlib.util, json, logging, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
logging.disable(logging.CRITICAL)
import importlib.metadata
package = importlib.metadata.distribution("verl").locate_file("verl/utils/reward_score/sandbox_fusion/__init__.py")
name = "verl_sandbox_fusion"
spec = importlib.util.spec_from_file_location(name, package, submodule_search_locations=[str(package.parent)])
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
source = package.read_text().replace("from .utils", "from verl_sandbox_fusion.utils")
exec(compile(source, str(package), "exec"), module.__dict__)
url, at_once, rows = json.loads(sys.stdin.readline())
semaphore = threading.Semaphore(at_once)
def one(row):
    return module.compute_score(url + "/run_code", semaphore, 1024, row[0], row[1])[0]
print("ready", flush=True)
sys.stdin.readline()
started = time.monotonic()
with ThreadPoolExecutor(at_once) as pool:
    scores = list(pool.map(one, rows))
print(json.dumps([time.monotonic() - started, scores]), flush=True)
"""

STOCK = """
import asyncio, resource, sys
sys.path.insert(0, sys.argv[1])
from builders.fusion.server import StockDouble, stock_double
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
async def serve():
    async with stock_double(StockDouble()) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(serve())
"""
"""Source of the stock server's double, which ends with its stdin. Its programs hold six descriptors each."""

Row = tuple[str, dict[str, list[str]], float]


class Measured(NamedTuple):
    """Figures of one side at one concurrency."""

    per_second: float
    wrong: int


def rows_of(number: int, mark: str) -> list[Row]:
    """Return programs with their tests and their rewards by construction. Every third passes one test in four."""
    rows = []
    for index in range(number):
        inputs = [f"{index} {test}\n" for test in range(TESTS)]
        outputs = [f"{index * test}\n" for test in range(TESTS)]
        right = index % 3 != 2
        line = "print(a * b)" if right else "print(a * b if b == 0 else -1)"
        code = f"# {mark} {index}\na, b = map(int, input().split())\n{line}"
        rows.append((f"```python\n{code}\n```", {"inputs": inputs, "outputs": outputs}, 1.0 if right else 1 / TESTS))
    return rows


def by_verl(python: Path, server: str, rows: Sequence[Row], at_once: int) -> Measured:
    with subprocess.Popen([python, "-c", VERL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([server, at_once, rows]) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        seconds, scores = json.loads(process.stdout.readline())
    return _measured(seconds, scores, rows)


def by_us(service: str, rows: Sequence[Row], at_once: int) -> Measured:
    client = RewardClient(Options(url=service, run="benchmark"))

    def one(row: Row) -> float | None:
        reward: float | None = client.submit(make_sample("codecontests", row[0], row[1])).result()["reward"]
        return reward

    started = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        scores = list(pool.map(one, rows))
    return _measured(time.monotonic() - started, scores, rows)


def _measured(seconds: float, scores: Sequence[float | None], rows: Sequence[Row]) -> Measured:
    wrong = sum(score is None or abs(score - row[2]) > 1e-9 for score, row in zip(scores, rows, strict=True))
    return Measured(len(rows) / seconds, wrong)


@contextmanager
def stock_server() -> Iterator[str]:
    command = [sys.executable, "-c", STOCK, str(ROOT / "tests")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def gen_cpu() -> Path | None:
    """Return the interpreter that has verl; None if it is not installed."""
    spec = importlib.util.spec_from_file_location("gen_cpu", ROOT / "tools" / "gen_cpu.py")
    if spec is None or spec.loader is None:
        return None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    found: Path | None = tool.interpreter()
    return found


async def measure(server: str | None, levels: Sequence[int], rounds: int) -> int:
    """Print both sides' figures. Return 1 if a reward of evalrun was wrong."""
    python, failed = gen_cpu(), 0
    with tempfile.TemporaryDirectory() as directory:
        services = []

        async def start(name: str, *flags: str) -> str:
            service = ServiceProcess(name, f"evalrun_{name}", flags, Path(directory) / f"{name}.log")
            services.append(service)
            await service.start()
            return service.address

        try:
            backend = ["--backend", "SandboxFusion"] if server else []
            sandbox = server or await start("sandbox")
            judge = await start("judge", "--sandbox", sandbox, *backend, "--cache-mib", "0")
            service = await start("reward", "--judge", judge, "--in-flight", "1024")
            await asyncio.to_thread(by_us, service, rows_of(20, "warm"), 4)
            print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {TESTS} tests a program, {sandbox}")
            print(
                f"{'at once':>8} {'verl, rewards/s':>16} {'ours, rewards/s':>16} {'ratio':>7} "
                f"{'wrong: verl':>12}  ours {'right ones':>11}"
            )
            for at_once in levels:
                for turn in range(rounds):
                    number = max(LEAST, PER_PLACE * at_once)
                    ours = await asyncio.to_thread(by_us, service, rows_of(number, f"o{at_once}.{turn}"), at_once)
                    failed += ours.wrong
                    if python is None:
                        print(f"{at_once:>8} {'-':>16} {ours.per_second:>16.1f} {'-':>7} {'-':>12} {ours.wrong:>5}")
                        continue
                    rows = rows_of(number, f"v{at_once}.{turn}")
                    verl = await asyncio.to_thread(by_verl, python, sandbox, rows, at_once)
                    ratio = ours.per_second / verl.per_second
                    right_ratio = ratio * (number - ours.wrong) / max(1, number - verl.wrong)
                    print(
                        f"{at_once:>8} {verl.per_second:>16.1f} {ours.per_second:>16.1f} {ratio:>6.1f}x "
                        f"{verl.wrong:>12} {ours.wrong:>5} {right_ratio:>10.1f}x",
                        flush=True,
                    )
            if python is None:
                print("verl is not installed (make setup-gen-cpu): no peer, no ratio")
        finally:
            for one in reversed(services):
                await one.stop(5)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", help="a SandboxFusion server that both ask: URL or stock; default: evalrun-sandbox")
    parser.add_argument("--at-once", default="1,16,64,256,1024", help="requests in flight, with commas")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    levels = [int(text) for text in asked.at_once.split(",")]
    with stock_server() if asked.server == "stock" else nullcontext(asked.server) as server:
        return asyncio.run(measure(server, levels, asked.rounds))


if __name__ == "__main__":
    sys.exit(main())
