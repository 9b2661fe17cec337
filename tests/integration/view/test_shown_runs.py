"""The runs in directories and at URLs: new ones appear, addresses stay, and one broken place hides no other."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders.results.stored_runs import samples_of, write_run

from evalrun_cli.viewer.run_catalog import find_runs
from evalrun_cli.viewer.server import list_runs
from evalrun_cli.viewer.shown_runs import DIRECTORY_SECONDS, URL_SECONDS, ShownRuns
from evalrun_runtime.exits import BadInputError

NOBODY = 65534


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scanner() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def shown_in(tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock, *places: str) -> ShownRuns:
    return ShownRuns(places, tmp_path / "scratch", scanner, scanner, clock)


def listed_in(runs: ShownRuns) -> list[dict[str, Any]]:
    listed: Any = list_runs(runs())["runs"]
    return list(listed)


def test_new_run_in_a_directory_appears_and_takes_no_address_of_another(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock
) -> None:
    for name in ("b", "d"):
        write_run(tmp_path / "runs" / name / "night", samples_of([(1, 1)]))
    runs = shown_in(tmp_path, scanner, clock, str(tmp_path / "runs"))
    before = {run_id: view.place for run_id, view in runs().items()}
    assert list(before) == ["night", "night-2"]
    write_run(tmp_path / "runs" / "a" / "night", samples_of([(1, 1)]))
    assert len(runs()) == 2
    clock.now += DIRECTORY_SECONDS
    after = {run_id: view.place for run_id, view in runs().items()}
    assert after == before | {"night-3": str(tmp_path / "runs" / "a" / "night")}
    shutil.rmtree(tmp_path / "runs" / "b")
    clock.now += DIRECTORY_SECONDS
    assert set(runs()) == {"night-2", "night-3"}


def test_new_run_at_a_url_appears_without_a_wait(tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock) -> None:
    url = (tmp_path / "runs").as_uri()
    write_run(tmp_path / "runs" / "a", samples_of([(1, 1)]))
    (tmp_path / "runs" / "no-run").mkdir()
    runs = shown_in(tmp_path, scanner, clock, url)
    assert {run_id: view.place for run_id, view in runs().items()} == {"a": f"{url}/a"}
    assert [each["state"] for each in listed_in(runs)] == ["Succeeded"]
    write_run(tmp_path / "runs" / "b", samples_of([(1, 1)]))
    clock.now += URL_SECONDS
    runs()  # begins to look, and waits for nothing
    scanner.submit(int).result()
    assert set(runs()) == {"a", "b"}
    shutil.rmtree(tmp_path / "runs" / "a")
    runs.look_at_once()
    runs()
    scanner.submit(int).result()
    assert set(runs()) == {"b"}


def test_place_that_cannot_be_read_stands_beside_the_others(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock
) -> None:
    write_run(tmp_path / "runs" / "a", samples_of([(1, 1)]))
    runs = shown_in(tmp_path, scanner, clock, str(tmp_path / "runs"), str(tmp_path / "gone"), "nowhere://bucket/x")
    listed = {each["id"]: each.get("error", "") for each in listed_in(runs)}
    assert set(listed) == {"a", "gone", "x"}
    assert listed["a"] == ""
    assert "no such directory" in listed["gone"]
    assert "nowhere" in listed["x"]
    with pytest.raises(BadInputError, match="gone: no such directory"):
        runs.require_runs()
    write_run(tmp_path / "gone" / "c", samples_of([(1, 1)]))
    clock.now += DIRECTORY_SECONDS
    assert set(runs()) == {"a", "c", "x"}


def test_directory_that_may_not_be_read_hides_no_other() -> None:
    """As lost+found of a volume."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        write_run(place / "runs" / "a", samples_of([(1, 1)]))
        (place / "runs" / "lost+found").mkdir(mode=0o700)
        place.chmod(0o755)
        is_root = os.geteuid() == 0
        if not is_root:
            (place / "runs" / "lost+found").chmod(0)
        try:
            if is_root:
                os.seteuid(NOBODY)
            assert find_runs(str(place / "runs")) == [str(place / "runs" / "a")]
            if is_root:
                with pytest.raises(BadInputError, match=r"lost\+found: cannot be read"):
                    find_runs(str(place / "runs" / "lost+found"))
        finally:
            if is_root:
                os.seteuid(0)
            (place / "runs" / "lost+found").chmod(0o700)
