"""Runs that are commands of their own: when they are stopped."""

import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from evalrun_cli.local.run_series import Choice, SeriesRun, count_runs_at_once, run_in_order, run_series
from evalrun_runtime.exits import ExitCode

STAYS = "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(130)); time.sleep(60)"


class Pretended(SeriesRun):
    """Runs a program of the test instead of the command."""

    def start(self, flags: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", *flags])


def run_of(label: str, directory: Path) -> SeriesRun:
    return Pretended(label, directory / f"{label}.yaml", directory / label)


def test_failure_between_runs_stops_the_runs_in_progress(tmp_path: Path) -> None:
    waiting = [(run_of("stays", tmp_path), [STAYS]), (run_of("ends", tmp_path), ["pass"])]

    def refuse(run: SeriesRun, code: int) -> None:
        raise ValueError(f"{run.label} {code}")

    with pytest.raises(ValueError, match="ends 0"):
        run_series(lambda _: waiting.pop(0) if waiting else None, [[]], refuse)
    # It would have waited for a minute, had the first one not been told to end.


def test_a_run_without_results_ends_the_series_and_the_others_are_waited_for(tmp_path: Path) -> None:
    ended = list[tuple[str, int]]()
    runs = [run_of(label, tmp_path) for label in ("a", "b", "c", "d", "e")]
    flags = ["import sys; sys.exit(1)"]
    code = run_in_order(runs, flags, lambda run, code: ended.append((run.label, code)))
    assert code == ExitCode.FAILED
    assert sorted(ended) == [(label, 1) for label in "abcd"]  # four at once; the fifth was not begun


@pytest.mark.parametrize(
    ("lanes", "cpus", "expected"),
    [
        (1, 2, 4),
        (1, 64, 4),
        (2, 2, 4),
        (2, 8, 8),
        (8, 4, 16),
        (8, 24, 24),
        (8, 64, 32),
    ],
)
def test_lanes_share_the_cpus_and_keep_two_runs_each(lanes: int, cpus: int, expected: int) -> None:
    assert count_runs_at_once(lanes, cpus) == expected


def test_lanes_run_every_choice_within_the_limit(tmp_path: Path) -> None:
    begun, beside = list[str](), list[int]()

    def choose(labels: Collection[str]) -> Choice | None:
        beside.append(len(labels))
        if len(begun) == 8:
            return None
        begun.append(f"r{len(begun)}")
        return run_of(begun[-1], tmp_path), ()

    assert run_series(choose, [["pass"]] * 3, lambda _run, _code: None, most=3) == ExitCode.SUCCEEDED
    assert len(begun) == 8
    assert max(beside) == 2  # the third has no room for another beside it
