"""Runs that are commands of their own, several at a time.

They start one ahead of the other: while one generates, the next has its services up and its checkpoint read, and waits
for its turn on the replicas; while it generates, the one before may still be judged.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_cli.local.workspace import WORK_ORDER
from evalrun_runtime.exits import ExitCode

AT_ONCE: Final = 4
"""Runs of a lane whose services are up: one that generates, some that get ready for their turn, and those still being
judged."""
POLL_SECONDS: Final = 0.05
RESULTS: Final = frozenset({ExitCode.SUCCEEDED, ExitCode.DEGRADED, ExitCode.GATE_FAILED, ExitCode.GATE_INCONCLUSIVE})
"""Codes of a run that has results."""


@dataclass(frozen=True)
class SeriesRun:
    """A run of a series, as a command of its own."""

    label: str
    file: Path
    output: Path

    def command(self, flags: Sequence[str]) -> list[str]:
        """Return the command that runs it, or goes on with it."""
        started = (self.output / WORK_ORDER).is_file()
        where = ["--resume" if started else "--output", str(self.output)]
        return [sys.executable, "-m", "evalrun_cli", "run", str(self.file), "--local", *where, *flags]

    def start(self, flags: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start that command; what it says goes to a file beside the run's."""
        with self.file.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                self.command(flags), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )

    def outcome(self, code: int) -> str:
        """Return what became of it, in a few words."""
        if code in RESULTS:
            return str(json.loads((self.output / "summary.json").read_bytes())["state"])
        return f"no results, exit code {code}: see {self.file.with_suffix('.log')}"


Choice = tuple[SeriesRun, Sequence[str]]
"""A run, and flags for it."""


def run_in_order(runs: Sequence[SeriesRun], lane: Sequence[str], ended: Callable[[SeriesRun, int], object]) -> ExitCode:
    """Run them one after another with the same flags, as `run_series` does."""
    waiting = list(runs)
    return run_series(lambda _: (waiting.pop(0), ()) if waiting else None, [lane], ended)


def run_series(
    choose: Callable[[Collection[str]], Choice | None],
    lanes: Sequence[Sequence[str]],
    ended: Callable[[SeriesRun, int], object],
) -> ExitCode:
    """Run what is chosen. What keeps one from running would keep the others too: it ends the series.

    Args:
        choose: gets the labels of the runs that are going and returns the next run; None: there is none for now, and
            there is an end if none is going.
        lanes: flags of the runs of each lane. A lane has replicas of its own and `AT_ONCE` runs at a time.
        ended: gets each run that has ended, with its exit code.
    """
    codes = set[int]()
    going: list[dict[SeriesRun, subprocess.Popen[bytes]]] = [{} for _ in lanes]

    def stop(number: int, frame: object) -> None:
        del number, frame
        for process in processes():
            process.send_signal(signal.SIGINT)
        raise KeyboardInterrupt

    def processes() -> "Iterator[subprocess.Popen[bytes]]":
        return (process for lane in going for process in lane.values())

    before = signal.signal(signal.SIGTERM, stop)  # Ctrl-C reaches the runs by itself
    try:
        while True:
            flags, lane = min(zip(lanes, going, strict=True), key=lambda each: len(each[1]))
            if len(lane) < AT_ONCE and not codes - RESULTS:
                chosen = choose({run.label for lane in going for run in lane})
                if chosen is not None:
                    run, more = chosen
                    lane[run] = run.start([*flags, *more])
                    continue
            if not any(going):
                return worst(codes)
            for lane in going:
                for run, code in [(run, code) for run, each in lane.items() if (code := each.poll()) is not None]:
                    del lane[run]
                    codes.add(code)
                    ended(run, code)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        for process in processes():
            process.wait()
        return ExitCode.STOPPED
    finally:
        signal.signal(signal.SIGTERM, before)


def worst(codes: Iterable[int]) -> ExitCode:
    """Return the code of a series: of a run without results, if any, else of the worst results. Pure."""
    without = sorted(set(codes) - RESULTS)
    if without:
        return ExitCode(without[-1]) if without[0] > 0 else ExitCode.FAILED
    return ExitCode(max(codes, default=ExitCode.SUCCEEDED))
