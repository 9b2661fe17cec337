"""The private directory: bounds, and emptying what a program made as awkward as it could."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalrun_executor.contained import directory


def test_a_modest_directory_is_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x" * 1000)
    assert directory.find_breach(str(tmp_path)) is None


def test_too_many_files_are_a_breach(tmp_path: Path) -> None:
    for number in range(directory.FILES + 1):
        (tmp_path / str(number)).touch()
    assert "files" in (directory.find_breach(str(tmp_path)) or "")


def test_sparse_files_count_their_allocated_bytes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert directory.find_breach(str(tmp_path)) is None


def test_too_deep_directories_are_a_breach(tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * (directory.DEPTH + 2))).mkdir(parents=True)
    assert "deeper" in (directory.find_breach(str(tmp_path)) or "")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads a directory without rights")
def test_folders_without_rights_are_measured_too(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for number in range(directory.FILES + 1):
        (hidden / str(number)).touch()
    hidden.chmod(0o300)
    assert directory.find_breach(str(tmp_path)) is not None


def test_ending_process_is_no_hidden_breach(tmp_path: Path) -> None:
    """It shows no descriptors, as one does whose first thread has ended while others run."""
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert directory.find_hidden_breach(str(tmp_path), process.pid) is None
    process.wait()


LEADER_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(flush=True)
ctypes.CDLL(None).syscall(60, 0)  # exit of this thread alone, on x86_64
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a system call by its number")
def test_process_whose_first_thread_has_ended_is_taken_to_hide_files(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", LEADER_ENDS], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 30
        while Path(f"/proc/{process.pid}/exe").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "as far as can be seen" in (directory.find_hidden_breach(str(tmp_path), process.pid) or "")
    finally:
        process.kill()
        process.communicate()


def test_empty_removes_directories_deeper_than_path_max(tmp_path: Path) -> None:
    start = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(3000):  # 3000 x 20 characters: past PATH_MAX
            Path("d" * 20).mkdir()
            os.chdir("d" * 20)
            Path("file").touch()
    finally:
        os.chdir(start)
    directory.empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_emptying_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    directory.empty(str(inside))
    assert (outside / "kept").exists()
    assert list(inside.iterdir()) == []
