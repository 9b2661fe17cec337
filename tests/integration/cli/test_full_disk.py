"""A disk that is really full: a run says so, loses nothing, and goes on once there is room."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROBLEMS = 150
LIMIT_SECONDS = 240.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 12 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip() or mounted.returncode}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def write_files(directory: Path) -> None:
    with (directory / "problems.jsonl").open("w") as problems, (directory / "answers.jsonl").open("w") as answers:
        for number in range(PROBLEMS):
            tests = {"inputs": ["x" * 2000], "outputs": ["y"]}
            row = {"dataset": "big", "problem_id": f"p{number}", "prompt": f"Task {number}", "ground_truth": tests}
            problems.write(json.dumps(row) + "\n")
            answers.write(json.dumps({"problem_id": f"p{number}", "response": f"print('y')  # {number}"}) + "\n")


def fill(disk: Path, left: int) -> None:
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filling").write_bytes(bytes(max(0, free - left)))


def start(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "evalrun_cli", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


def wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.mark.timeout(3 * LIMIT_SECONDS)
def test_run_on_a_full_disk_that_is_stopped_is_resumed_without_a_loss(tmp_path: Path, small_disk: Path) -> None:
    write_files(tmp_path)
    output, log = small_disk / "out", tmp_path / "log"
    files = ["--problems", str(tmp_path / "problems.jsonl"), "--responses", str(tmp_path / "answers.jsonl")]
    fill(small_disk, 600_000)
    judging = start("judge", *files, "--output", str(output), log=log)
    wait_for("the disk is full", log, judging)
    judging.send_signal(signal.SIGINT)
    assert judging.wait(timeout=LIMIT_SECONDS) == 130
    assert "go on with: evalrun resume" in log.read_text()
    (small_disk / "filling").unlink()
    resumed = start("resume", str(output), log=log)
    assert resumed.wait(timeout=LIMIT_SECONDS) == 0, log.read_text()
    counts = json.loads((output / "summary.json").read_text())["datasets"]["big"]["counts"]
    assert (counts["problems"], counts["judged"], counts["accepted"]) == (PROBLEMS, PROBLEMS, PROBLEMS)


@pytest.mark.timeout(2 * LIMIT_SECONDS)
def test_run_on_a_full_disk_continues_once_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    write_files(tmp_path)
    output, log = small_disk / "out", tmp_path / "log"
    files = ["--problems", str(tmp_path / "problems.jsonl"), "--responses", str(tmp_path / "answers.jsonl")]
    fill(small_disk, 600_000)
    judging = start("judge", *files, "--output", str(output), log=log)
    wait_for("the disk is full", log, judging)
    (small_disk / "filling").unlink()
    assert judging.wait(timeout=LIMIT_SECONDS) == 0, log.read_text()
    assert json.loads((output / "summary.json").read_text())["counts"]["accepted"] == PROBLEMS
