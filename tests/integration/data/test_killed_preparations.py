"""kill -9 at any moment of a preparation: no file is half-written, and the same command ends with the same files."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.governance import contest_row, tree, write_plan, write_rows

COMMAND = [sys.executable, "-m", "evalrun_data.governance", "prepare"]
SECONDS = 50.0


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plan")
    write_rows(directory / "train.jsonl", (contest_row(n, 20, dataset="train") for n in range(2500)))
    write_rows(directory / "test.jsonl", (contest_row(n, dataset="test") for n in range(10_000, 10_010)))
    names = (("train", "train"), ("test", "test"))
    return write_plan(directory, [{"name": n, "source": f"{n}.jsonl", "role": role} for n, role in names])


@pytest.fixture(scope="module")
def whole(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("whole") / "out"
    subprocess.run([*COMMAND, plan, "--output", output], check=False, capture_output=True, timeout=SECONDS)
    return tree(output)


@pytest.mark.parametrize(
    "moment",
    [
        ".preparing/work/train/parts/00000.json",
        ".preparing/work/train/done.json",
        ".preparing/publishing",
        "test/test.jsonl",
        "data_manifests/prepared.json",
    ],
)
def test_killed_preparation_leaves_whole_files_and_is_completed_by_the_next(
    moment: str, plan: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    process = subprocess.Popen(
        [*COMMAND, plan, "--output", output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + SECONDS
    while not (output / moment).exists() and process.poll() is None and time.monotonic() < deadline:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    for name, content in tree(output).items():
        # A file that was being written when the process died has a name of its own, which nobody reads.
        is_finished = not name.startswith(".preparing/") and not name.endswith(".partial")
        if is_finished and Path(name).name not in {"audit.json", "audit_report.md"}:
            assert content == whole[name], f"{name} is there and not whole"
    again = subprocess.run([*COMMAND, plan, "--output", output], check=False, capture_output=True, timeout=SECONDS)
    assert again.returncode in {0, 1}
    assert tree(output) == whole
