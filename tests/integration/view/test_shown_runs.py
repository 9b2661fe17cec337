"""The runs in directories and at URLs: new ones appear, addresses stay, and one broken place hides no other."""

import json
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
from evalrun_cli.viewer.server import encode_runs
from evalrun_cli.viewer.shown_runs import DIRECTORY_SECONDS, URL_SECONDS, ShownRuns, UnreadablePlace, add_running_runs
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
    listed: Any = json.loads(encode_runs(runs()))["runs"]
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


def test_unreadable_place_is_listed_with_its_error_beside_the_others(
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


@pytest.mark.parametrize(
    "content",
    [
        "[" * 200_000,
        '{"schema": 1, "datasets": {"d": {"coverage": NaN}}}',
        '{"schema": 1, "datasets": {"d": {"coverage": 1e999}}}',
    ],
    ids=["deep", "nan", "infinite"],
)
def test_summary_that_cannot_be_shown_hides_no_other_run(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock, content: str
) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name, samples_of([(1, 1)]))
    (tmp_path / "runs" / "a" / "summary.json").write_text(content)
    listed = listed_in(shown_in(tmp_path, scanner, clock, str(tmp_path / "runs")))
    assert [each["id"] for each in listed if "error" not in each] == ["b"]
    json.dumps(listed, allow_nan=False)


@pytest.mark.parametrize("name", ["run_info.json", "results.jsonl"])
def test_pipe_in_a_run_is_reported_and_never_opened(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock, name: str
) -> None:
    run = write_run(tmp_path / "runs" / "a", samples_of([(1, 1)]))
    (run / name).unlink()
    os.mkfifo(run / name)
    (listed,) = listed_in(shown_in(tmp_path, scanner, clock, str(tmp_path / "runs")))
    assert listed["error"] == f"{run / name}: is a pipe or a device: put the file itself there"


def test_link_to_a_directory_of_runs_is_not_followed(tmp_path: Path) -> None:
    for name in ("runs/a", "private/b"):
        write_run(tmp_path / name, samples_of([(1, 1)]))
    (tmp_path / "runs" / "other").symlink_to(tmp_path / "private")
    assert find_runs(str(tmp_path / "runs")) == [str(tmp_path / "runs" / "a")]


def test_run_whose_files_are_links_to_elsewhere_is_not_shown(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock
) -> None:
    private = write_run(tmp_path / "private", samples_of([(1, 1)]))
    mine = tmp_path / "runs" / "mine"
    mine.mkdir(parents=True)
    for file in private.iterdir():
        (mine / file.name).symlink_to(file)
    (listed,) = listed_in(shown_in(tmp_path, scanner, clock, str(tmp_path / "runs")))
    assert listed["error"].endswith("summary.json: leads out of the run's directory: put the file itself there")


def indexed(runs: ShownRuns, scanner: ThreadPoolExecutor, run_id: str) -> dict[str, Any]:
    """Return the description of a run once what it began is done."""
    runs()[run_id].description()
    scanner.submit(int).result()
    return runs()[run_id].description()


@pytest.mark.parametrize("is_url", [False, True], ids=["directory", "url"])
def test_outputs_replaced_in_their_place_are_indexed_again(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock, *, is_url: bool
) -> None:
    run = write_run(tmp_path / "runs" / "a", samples_of([(3, 1)]))
    runs = shown_in(tmp_path, scanner, clock, (tmp_path / "runs").as_uri() if is_url else str(tmp_path / "runs"))
    assert [each["rows"] for each in indexed(runs, scanner, "a")["segments"]] == [3]
    shutil.rmtree(run)
    write_run(run, samples_of([(5, 1)]))
    clock.now += URL_SECONDS
    after = indexed(runs, scanner, "a")
    assert [each["rows"] for each in after["segments"]] == [5]
    assert after["complete"]


def test_running_run_takes_no_address_of_a_stored_one(
    tmp_path: Path, scanner: ThreadPoolExecutor, clock: Clock
) -> None:
    run = write_run(tmp_path / "runs" / "night", samples_of([(1, 1)]))
    stored = shown_in(tmp_path, scanner, clock, str(tmp_path / "runs"))()
    running = UnreadablePlace("night", "EvalRun evals/night", "")
    shown = add_running_runs(stored, {"night": running})
    assert {run_id: view.place for run_id, view in shown.items()} == {
        "night": str(run),
        "night-2": "EvalRun evals/night",
    }
    assert running.run_id == "night-2"
    assert set(add_running_runs({}, {"night": running})) == {"night"}
