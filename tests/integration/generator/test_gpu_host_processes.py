"""What a GPU host kills and removes: orphans that ignore signals, shared memory, directories whose owner was killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalrun_generator.gpu_host.model_download import list_ignored_files
from evalrun_generator.gpu_host.processes import parents, start_time
from evalrun_generator.gpu_host.session_directory import OWNER, PREFIX, make_session_directory, remove_abandoned

HOST = """
import os, subprocess, sys, time
from pathlib import Path
from evalrun_generator.gpu_host.processes import Descendants, adopt_orphans, end_descendants

ENGINE = '''
import mmap, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
descriptor = os.open(sys.argv[1] + "-mapped", os.O_CREAT | os.O_RDWR)
os.ftruncate(descriptor, 4096)
held = mmap.mmap(descriptor, 4096)
os.close(os.open(sys.argv[1] + "-" + str(os.getpid()) + "-named", os.O_CREAT | os.O_RDWR))
print(os.getpid(), flush=True)
time.sleep(600)
'''
adopt_orphans()
seen = Descendants()
engine = subprocess.Popen([sys.executable, "-c", ENGINE, sys.argv[1]], stdout=subprocess.PIPE, text=True)
orphan = int(engine.stdout.readline())
seen.look()
if sys.argv[2] == "ended":
    os.kill(orphan, 9)
left = end_descendants(20, seen)
print(orphan, left, flush=True)
"""


@pytest.mark.parametrize("engine", ["running", "ended"])
def test_end_descendants_kills_orphans_and_removes_their_shared_memory(engine: str) -> None:
    name = f"/dev/shm/evalrun-test-{os.getpid()}x"
    done = subprocess.run(
        [sys.executable, "-c", HOST, name, engine], capture_output=True, text=True, timeout=50, check=True
    )
    orphan, left = done.stdout.split(maxsplit=1)
    assert left.strip() == "[]"
    assert int(orphan) not in parents()
    assert [*Path("/dev/shm").glob(f"{Path(name).name}*")] == []


TRACKED = """
import multiprocessing, os, subprocess, sys
from evalrun_generator.gpu_host.processes import Descendants, adopt_orphans, end_descendants

ENGINE = '''
import multiprocessing, time
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
time.sleep(600)
'''
adopt_orphans()
engine = subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, text=True)
name = engine.stdout.readline().strip()
seen = Descendants()
if sys.argv[1] == "killed":
    for pid in seen.look():
        os.kill(pid, 9)
print(os.path.exists("/dev/shm/sem." + name.lstrip("/")), end_descendants(20, seen), flush=True)
print(os.path.exists("/dev/shm/sem." + name.lstrip("/")))
"""


@pytest.mark.parametrize("tracker", ["living", "killed"])
def test_end_descendants_leaves_no_semaphore(tracker: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRACKED, tracker], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.split() == ["True", "[]", "False"]


def test_directory_of_a_living_owner_is_kept(tmp_path: Path) -> None:
    directory = make_session_directory(tmp_path)
    assert {path.name for path in directory.code.iterdir()} >= {"evalrun_api", "evalrun_generator"}
    assert remove_abandoned(tmp_path) == []
    assert directory.path.is_dir()
    directory.remove()
    assert [*tmp_path.iterdir()] == []


def test_directory_of_a_killed_owner_is_removed_with_its_processes(tmp_path: Path) -> None:
    directory = tmp_path / f"{PREFIX}left"
    directory.mkdir()
    started = start_time(os.getpid())
    assert started is not None
    (directory / OWNER).write_text(json.dumps({"pid": os.getpid(), "start": started - 1}))  # the id was given again
    with (directory / "worker.out").open("wb") as output:
        # As an engine that has overwritten its command line: only its output tells whose it is.
        engine = subprocess.Popen(["sleep", "600"], stdout=output, env={})
    assert remove_abandoned(tmp_path) == [directory]
    assert engine.wait(10) == -9
    assert not directory.exists()


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"pid": "x", "start": 1}'])
def test_directory_without_a_readable_owner_is_kept_with_its_processes(content: str | None, tmp_path: Path) -> None:
    directory = tmp_path / f"{PREFIX}odd"
    directory.mkdir()
    if content is not None:
        (directory / OWNER).write_text(content)
    foreign = subprocess.Popen(["sleep", "600"], cwd=directory)
    try:
        assert remove_abandoned(tmp_path) == []
        assert directory.is_dir()
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_download_leaves_out_the_same_weights_in_other_formats() -> None:
    assert "*.bin" in list_ignored_files(["config.json", "model-00001-of-00002.safetensors", "pytorch_model.bin"])
    assert list_ignored_files(["config.json", "pytorch_model.bin"]) == ()


def test_start_time_distinguishes_processes() -> None:
    own = start_time(os.getpid())
    assert own is not None
    assert start_time(os.getppid()) is not None
    assert start_time(2**22 + 1) is None
    assert time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") >= own
