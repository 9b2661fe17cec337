"""Runs the `evalrun` command as a user would, and looks at the processes that it starts."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml
from builders.data import write_jsonl

from evalrun_cli.local.forked_process import MAX_NAME

PROJECT = Path(__file__).resolve().parents[2]
DEMO = PROJECT / "k8s" / "samples" / "demo.yaml"
COMMAND = [sys.executable, "-m", "evalrun_cli"]
Command = Callable[..., subprocess.CompletedProcess[str]]
"""Runs the command with arguments of text and paths."""


def quick_demo(directory: Path, problems: int = 32) -> Path:
    """Write the demo's file so that an answer's first timeout is its last: two answers never end on five tests.

    The first 8 `problems` have no such answer, the first 16 have one: a second of CPU each.
    """
    manifest = yaml.safe_load(DEMO.read_text())
    manifest["spec"]["datasets"][0] |= {"stopAfterTimeouts": 1, "maxProblems": problems}
    file = directory / "demo.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


def demo_as_filed() -> dict[tuple[str, str, int], str]:
    """Return the `verdicts` of all of the demo set, as they are filed."""
    filed = json.loads((PROJECT / "tests" / "unit" / "data" / "demo_expected.json").read_text())
    first = {key.removesuffix("/0"): entry for key, entry in filed.items() if key.endswith("/0")}
    return {("demo", problem, 0): entry["final_status"] for problem, entry in first.items()}


def run_of(file: Path) -> tuple[str | Path, ...]:
    return ("run", file, "--local", "--endpoint", "builtin:demo")


def evalrun(*arguments: str | Path, timeout: float = 150.0) -> subprocess.CompletedProcess[str]:
    """Run the command to its end and give what it printed."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def judge_rows(
    directory: Path, problems: Iterable[Mapping[str, object]], answers: Iterable[Mapping[str, object]]
) -> subprocess.CompletedProcess[str]:
    """Judge answers to problems, which are written into a directory as problems.jsonl and answers.jsonl, into `run`."""
    return evalrun(
        *("judge", "--problems", write_jsonl(directory / "problems.jsonl", problems)),
        *("--responses", write_jsonl(directory / "answers.jsonl", answers), "--output", directory / "run"),
    )


@contextmanager
def evalrun_started(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start the command; whatever is left of it is killed at the end.

    `processes_with` finds its parts, too, by any of its arguments: they stand in the environment.
    """
    command = [*COMMAND, *map(str, arguments)]
    environment = {**os.environ, "STARTED_BY": " ".join(command)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


VICTIMS = {
    "generator": "evalrun_generator",
    "aggregator": "evalrun_aggregator",
    "judge": "evalrun_judge",
    "sandbox": "evalrun_sandbox",
    "command": "",
}
"""Parts of a run on one machine that may be killed, with their modules; the command itself has none."""


def kill_at(parent: int, victim: str, delay: float) -> bool:
    """Wait until the victim runs, then `delay` seconds, then kill it; False where the run ended before."""
    moment = threading.Event()  # never set: the random moment is a time, there is nothing to wait for
    deadline = time.monotonic() + 120
    module = VICTIMS[victim] or VICTIMS["aggregator"]
    while (child := child_running(parent, module)) is None:
        if time.monotonic() > deadline or not Path(f"/proc/{parent}").exists():
            return False
        moment.wait(0.05)  # a look at all processes takes some 10 ms of CPU
    moment.wait(delay)
    try:
        os.kill(child if VICTIMS[victim] else parent, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def child_running(parent: int, module: str) -> int | None:
    """Return the id of the child of `parent` that runs a module: forked, which its name tells, or by `python -m`; None
    while there is none.
    """
    name = f"({module.replace('_', '-')[:MAX_NAME]})"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended while we looked
            continue
        runs_it = name in stat or words[1:3] == [b"-m", module.encode()]
        if int(stat.rpartition(")")[2].split()[1]) == parent and runs_it:
            return int(entry.name)
    return None


def processes_with(marker: str) -> list[int]:
    """Return the ids of all processes, this one excepted, whose environment or arguments hold `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker.encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def answers_stored(output: Path) -> int:
    """Return how many answers the ledger of a run that may be under way has; 0 before there is one."""
    try:
        with closing(sqlite3.connect(f"file:{output / 'ledger.sqlite3'}?mode=ro", uri=True)) as ledger:
            return int(ledger.execute("SELECT count(*) FROM completions").fetchone()[0])
    except sqlite3.OperationalError:  # no file yet, or no table in it
        return 0


def results(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]


def verdicts(directory: Path) -> dict[tuple[str, str, int], str]:
    """Return each answer's final status by (dataset, problem, sample); a doubled row is an error."""
    rows = results(directory)
    found = {(row["dataset"], row["problem_id"], row["sample"]): row["final_status"] for row in rows}
    if len(found) != len(rows):
        raise AssertionError(f"{directory}: {len(rows) - len(found)} rows are doubled")
    return found


def summary(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return content
