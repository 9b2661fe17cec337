"""A path on a mounted volume stays on it: neither `..` nor a symbolic link reads the pod's own files."""

from pathlib import Path

import pytest

from evalrun_api import names
from evalrun_data.sources import VOLUMES_DIRECTORY, check_inside_volume, read_rows
from evalrun_results.outputs.destination import resolve_destination
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

SECRET = "root:x:0:0"


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """Two volumes, and a file beside them that nobody may read through one."""
    (tmp_path / "passwd").write_text(SECRET)
    mounts = tmp_path / "mnt" / "claims"
    for claim in ("problems", "other"):
        (mounts / claim / "deep").mkdir(parents=True)
    (mounts / "problems" / "a.jsonl").write_text("{}")
    (mounts / "problems" / "deep" / "same").symlink_to("../a.jsonl")
    (mounts / "problems" / "escape").symlink_to(tmp_path / "passwd")
    (mounts / "problems" / "neighbour").symlink_to("../other")
    return mounts


@pytest.mark.parametrize("name", ["problems/a.jsonl", "problems/deep/../a.jsonl", "problems/deep/same", "problems/new"])
def test_path_on_the_volume_is_accepted(volumes: Path, name: str) -> None:
    check_inside_volume(volumes / name, volumes)


@pytest.mark.parametrize(
    "name",
    [
        "problems/../../../passwd",
        "problems/escape",
        "problems/neighbour/deep",
        "problems/../other/deep",
        "../claims/problems/a.jsonl",
        "problems/deep/../../../../passwd",
    ],
)
def test_path_outside_the_volume_is_refused_without_revealing_it(volumes: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="leads out of its volume: name a file inside") as refused:
        check_inside_volume(volumes / name, volumes)
    assert SECRET not in str(refused.value)


def test_path_outside_the_directory_of_volumes_is_not_checked(tmp_path: Path, volumes: Path) -> None:
    check_inside_volume(tmp_path / "x" / ".." / "passwd", volumes)


def test_the_directory_is_the_one_that_the_operator_mounts_volumes_in() -> None:
    assert str(VOLUMES_DIRECTORY) == names.CLAIMS_DIRECTORY


def test_problems_baseline_and_outputs_are_checked_where_they_are_opened() -> None:
    path = names.local_path("pvc://problems/../../../etc/passwd")
    with pytest.raises(BadInputError, match="leads out of its volume"):
        next(read_rows(path))
    with pytest.raises(BadInputError, match="leads out of its volume"):
        StoredRun.open(path)
    with pytest.raises(BadInputError, match="leads out of its volume"):
        resolve_destination(path)
