"""Runs a series of runs, each as a command of its own, several at a time.

The next run starts ahead: while a run generates, the next has its services up and its checkpoint read, and waits for
its turn on the replicas; the run before may still be judged.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_cli.local.workspace import WORK_ORDER
from evalrun_executor.cpus import usable_cpus
from evalrun_runtime.exits import ExitCode

AT_ONCE: Final = 4
"""Maximum number of runs per lane with running services: one generates, some prepare for their turn, and some are still
being judged."""
LEAST_OF_LANE: Final = 2
"""Minimum number of runs per lane: one generates, and one is ready for its turn. With fewer, GPUs would idle between
runs."""
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
        """Return the command that starts or continues the run."""
        started = (self.output / WORK_ORDER).is_file()
        where = ["--resume" if started else "--output", str(self.output)]
        return [sys.executable, "-m", "evalrun_cli", "run", str(self.file), "--local", *where, *flags]

    def start(self, flags: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start the command, with its output in a file beside the run's."""
        with self.file.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                self.command(flags), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )

    def outcome(self, code: int) -> str:
        """Return the outcome of the run in a few words."""
        if code in RESULTS:
            return str(json.loads((self.output / "summary.json").read_bytes())["state"])
        return f"no results, exit code {code}: see {self.file.with_suffix('.log')}"


Choice = tuple[SeriesRun, Sequence[str]]
"""A run, and flags for it."""


def run_in_order(runs: Sequence[SeriesRun], lane: Sequence[str], ended: Callable[[SeriesRun, int], object]) -> ExitCode:
    """Run the runs one after another with the same flags, as `run_series` does."""
    waiting = list(runs)
    return run_series(lambda _: (waiting.pop(0), ()) if waiting else None, [lane], ended)


def count_runs_at_once(lanes: int, cpus: int) -> int:
    """Return how many runs may go at once over all lanes: each has services that judge, on the same CPUs. Pure."""
    return max(AT_ONCE, LEAST_OF_LANE * lanes, min(AT_ONCE * lanes, cpus))


def run_series(
    choose: Callable[[Collection[str]], Choice | None],
    lanes: Sequence[Sequence[str]],
    ended: Callable[[SeriesRun, int], object],
    most: int | None = None,
) -> ExitCode:
    """Run the chosen runs. A failure of a run ends the series, because the others would fail for the same reason.

    Args:
        choose: gets the labels of the running runs and returns the next run; None: there is none for now, and the
            series ends if none is running.
        lanes: flags of the runs of each lane. A lane has its own replicas and at most `AT_ONCE` runs at a time.
        ended: called with each ended run and its exit code. If `ended` raises, the other runs are stopped first.
        most: maximum number of simultaneous runs of all lanes; None: as many as this machine's CPUs judge, see
            `count_runs_at_once`.
    """
    codes, going = set[int](), _Going(lanes, most or count_runs_at_once(len(lanes), usable_cpus()))

    def stop(number: int, frame: object) -> None:
        del number, frame
        going.interrupt()
        raise KeyboardInterrupt

    # Ctrl-C reaches the runs by itself.
    before = signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            chosen = choose(going.labels) if going.has_room and not codes - RESULTS else None
            if chosen is not None:
                going.start(*chosen)
                continue
            if not going.labels:
                return worst(codes)
            for run, code in going.take_ended():
                codes.add(code)
                ended(run, code)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return ExitCode.STOPPED
    except Exception:
        going.interrupt()
        raise
    finally:
        going.wait()
        signal.signal(signal.SIGTERM, before)


class _Going:
    """The runs under way, by lane."""

    def __init__(self, lanes: Sequence[Sequence[str]], most: int) -> None:
        self._flags = lanes
        self._most = most
        self._lanes: list[dict[SeriesRun, subprocess.Popen[bytes]]] = [{} for _ in lanes]

    @property
    def labels(self) -> set[str]:
        return {run.label for lane in self._lanes for run in lane}

    @property
    def has_room(self) -> bool:
        counts = [len(lane) for lane in self._lanes]
        return min(counts) < AT_ONCE and sum(counts) < self._most

    def start(self, run: SeriesRun, more: Sequence[str]) -> None:
        """Start a run in the lane with the fewest runs."""
        flags, lane = min(zip(self._flags, self._lanes, strict=True), key=lambda each: len(each[1]))
        lane[run] = run.start([*flags, *more])

    def take_ended(self) -> list[tuple[SeriesRun, int]]:
        """Remove the runs that have ended, and return them with their exit codes."""
        ended = []
        for lane in self._lanes:
            codes = {run: process.poll() for run, process in lane.items()}
            for run, code in codes.items():
                if code is not None:
                    del lane[run]
                    ended.append((run, code))
        return ended

    def interrupt(self) -> None:
        """Stop all runs. Their stored results stay."""
        for lane in self._lanes:
            for process in lane.values():
                process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Wait until all runs have ended."""
        for lane in self._lanes:
            for process in lane.values():
                process.wait()


def worst(codes: Iterable[int]) -> ExitCode:
    """Return the exit code of a series: that of a run without results, if any, else that of the worst results. Pure."""
    without = sorted(set(codes) - RESULTS)
    if without:
        return ExitCode(without[-1]) if without[0] > 0 else ExitCode.FAILED
    return ExitCode(max(codes, default=ExitCode.SUCCEEDED))
