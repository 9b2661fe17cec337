"""The catalogue's files: every run once, whatever writers do and wherever they die."""

import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.catalogued_runs import catalogue_of, write_checkpoint

from evalrun_results.catalogue.entry import RUN_SCHEMA, SCHEMA_VERSION
from evalrun_results.catalogue.location import FOLDER, CataloguePlace, catalogue_above
from evalrun_results.catalogue.store import Catalogue
from evalrun_runtime.exits import BadInputError


def places_of(catalogue: Catalogue) -> list[str]:
    return sorted(row["place"] for row in catalogue.live_rows())


def counted_results(root: Path) -> dict[str, int]:
    """Count the results of each live run, in the files that its row names."""
    rows = catalogue_of(root, writer="reader").live_rows()
    counts = {}
    for row in rows:
        table = pq.read_table(root / FOLDER / "results" / row["results_file"])
        counts[row["place"]] = sum(entry == row["entry"] for entry in table.column("entry").to_pylist())
    return counts


def test_update_adds_changed_and_removed_runs(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, [True, False])
    catalogue = catalogue_of(tmp_path)
    assert catalogue.update().added == 3
    assert catalogue.update().unchanged == 3
    write_checkpoint(tmp_path, 2, [True, True, True])
    shutil.rmtree(tmp_path / "run-3")
    changes = catalogue.update()
    assert (changes.added, changes.changed, changes.removed, changes.unchanged) == (0, 1, 1, 1)
    assert places_of(catalogue) == ["run-1", "run-2"]
    assert counted_results(tmp_path) == {"run-1": 2, "run-2": 3}


def test_row_of_a_run_has_its_metrics_and_lineage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 7, [True, True, False, None])
    catalogue = catalogue_of(tmp_path)
    catalogue.update()
    (row,) = catalogue.live_rows()
    assert (row["run"], row["schedule"], row["step"], row["phase"]) == ("run-7", "nightly", 7, "grpo")
    assert row["state"] == "Degraded"
    values = {each["metric"]: each["value"] for each in row["metrics"]}
    assert values["accepted_at_1"] == pytest.approx(2 / 3)
    assert row["datasets"][0]["coverage"] == 0.75


def test_run_without_summary_is_not_listed(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path, 1, [True])
    (run / "summary.json").unlink()
    assert catalogue_of(tmp_path).update().added == 0


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_broken_run_is_skipped_with_the_reason(tmp_path: Path, content: str) -> None:
    write_checkpoint(tmp_path, 1, [True])
    broken = write_checkpoint(tmp_path, 2, [True])
    (broken / "run_info.json").write_text(content)
    changes = catalogue_of(tmp_path).update()
    assert changes.added == 1
    assert changes.skipped[0].startswith("run-2: run_info.json is not ")


def test_run_without_parquet_is_read_from_its_lines(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path, 1, [True, False, None])
    (run / "results.parquet").unlink()
    catalogue_of(tmp_path).update()
    assert counted_results(tmp_path) == {"run-1": 3}


def test_compaction_keeps_every_run_once(tmp_path: Path) -> None:
    catalogue = catalogue_of(tmp_path)
    for step in range(1, 6):
        write_checkpoint(tmp_path, step, [True] * step)
        catalogue.update()
    catalogue.compact()
    assert counted_results(tmp_path) == {f"run-{step}": step for step in range(1, 6)}
    assert len(list((tmp_path / FOLDER / "runs").iterdir())) == 1
    assert len(list((tmp_path / FOLDER / "results").iterdir())) == 1


def test_two_writers_at_once_list_every_run_once(tmp_path: Path) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, [True, False])
    first, second = catalogue_of(tmp_path, writer="a"), catalogue_of(tmp_path, writer="b")
    first.update()
    second_view = catalogue_of(tmp_path, writer="b")
    write_checkpoint(tmp_path, 3, [True])
    second_view.update()
    second.update()
    assert places_of(first) == ["run-1", "run-2", "run-3"]
    assert counted_results(tmp_path) == {"run-1": 2, "run-2": 2, "run-3": 1}


class DyingCatalogue(Catalogue):
    """A writer that is killed after so many writes and deletions."""

    steps_left = 0

    def _put_bytes(self, kind: str, name: str, content: bytes) -> None:
        self._live()
        super()._put_bytes(kind, name, content)

    def _delete(self, kind: str, names) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - as the base
        for name in list(names):
            self._live()
            super()._delete(kind, [name])

    def _live(self) -> None:
        if self.steps_left == 0:
            raise KeyboardInterrupt
        self.steps_left -= 1


@pytest.mark.parametrize("steps", range(12))
def test_writer_that_dies_loses_no_run(tmp_path: Path, steps: int) -> None:
    """It dies at each write and each deletion of an update and of a compaction; the next writer goes on."""
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, [True] * step)
        catalogue_of(tmp_path, writer=f"early{step}").update()
    write_checkpoint(tmp_path, 2, [False, True])
    dying = DyingCatalogue(str(tmp_path), now=lambda: 5000.0, new_name=lambda: f"dying{dying.steps_left}")
    dying.steps_left = steps
    try:
        dying.update()
        dying.compact()
    except KeyboardInterrupt:
        pass
    later = catalogue_of(tmp_path, writer="later", now=lambda: 6000.0)
    later.update()
    assert counted_results(tmp_path) == {"run-1": 1, "run-2": 2, "run-3": 3}
    later.compact()
    assert counted_results(tmp_path) == {"run-1": 1, "run-2": 2, "run-3": 3}


class LargeFiles(Catalogue):
    """A writer that takes each file of results for a large one, written long ago."""

    def _list(self, kind: str) -> dict[str, Mapping[str, Any]]:
        found = super()._list(kind)
        return {name: {**info, "size": 1 << 30, "mtime": 0.0} for name, info in found.items()}


class OvertakenCatalogue(LargeFiles):
    """A writer that has listed the runs' files when another one compacts them."""

    overtakes: Callable[[], None] | None = None

    def _list(self, kind: str) -> dict[str, Mapping[str, Any]]:
        found = super()._list(kind)
        if kind == "runs" and self.overtakes is not None:
            overtakes, self.overtakes = self.overtakes, None
            overtakes()
        return found


def opened(kind: type[Catalogue], root: Path, writer: str) -> Any:
    numbers = itertools.count()
    return kind(str(root), now=time.time, new_name=lambda: f"{writer}{next(numbers):04}")


def test_two_compactions_at_once_delete_no_results_that_a_row_names(tmp_path: Path) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, [True] * step)
    first, second = opened(LargeFiles, tmp_path, "a"), opened(OvertakenCatalogue, tmp_path, "b")
    first.update()
    second.overtakes = first.compact
    second.compact()
    assert counted_results(tmp_path) == {"run-1": 1, "run-2": 2}


def test_results_that_two_writers_have_both_merged_are_taken_once(tmp_path: Path) -> None:
    """The rows of one run name the second writer's file, and the first one's file holds its results, too."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_checkpoint(ours, 1, [True, False])
    catalogue_of(ours).update()
    shutil.copytree(ours, theirs)
    write_checkpoint(ours, 2, [True])
    seconds = itertools.count(2000.0)
    first, later = (catalogue_of(ours, writer=name, now=lambda: next(seconds)) for name in "bd")
    first.update()
    first.compact()
    catalogue_of(theirs, writer="c", now=lambda: 3000.0).compact()
    for kind in ("runs", "results"):
        for file in (theirs / FOLDER / kind).glob("c*"):
            shutil.copy(file, ours / FOLDER / kind)
    assert counted_results(ours) == {"run-1": 2, "run-2": 1}
    later.compact()
    assert counted_results(ours) == {"run-1": 2, "run-2": 1}


def test_run_whose_stored_results_were_deleted_is_read_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, [True, False])
    catalogue = catalogue_of(tmp_path)
    catalogue.update()
    for file in (tmp_path / FOLDER / "results").iterdir():
        file.unlink()
    assert catalogue.update().changed == 1
    assert counted_results(tmp_path) == {"run-1": 2}


def test_results_that_a_newer_evalruns_row_names_are_kept(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, [True])
    catalogue = opened(LargeFiles, tmp_path, "a")
    catalogue.update()
    (file,) = (tmp_path / FOLDER / "runs").iterdir()
    rows = [{**row, "schema": SCHEMA_VERSION + 1} for row in pq.read_table(file).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=RUN_SCHEMA), file)
    catalogue.compact()
    assert [each.name for each in (tmp_path / FOLDER / "results").iterdir()] == [rows[0]["results_file"]]


def test_rows_of_a_newer_evalrun_are_left_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, [True])
    catalogue = catalogue_of(tmp_path)
    catalogue.update()
    newer = {"schema": 2, "entry": "x", "place": "other", "indexed_at": 1.0, "compacted_at": 0.0, "removed": False}
    table = pa.Table.from_pylist([newer], schema=RUN_SCHEMA)
    pq.write_table(table, tmp_path / FOLDER / "runs" / "newer.parquet")
    catalogue.compact()
    assert places_of(catalogue) == ["run-1"]
    assert (tmp_path / FOLDER / "runs" / "newer.parquet").exists()


def test_results_that_no_row_names_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    import os

    write_checkpoint(tmp_path, 1, [True])
    catalogue = catalogue_of(tmp_path, now=lambda: 1_000_000.0)
    catalogue.update()
    orphans: Sequence[Path] = [tmp_path / FOLDER / "results" / name for name in ("old.parquet", "young.parquet")]
    for orphan, age in zip(orphans, (4000, 10), strict=True):
        orphan.write_bytes(b"")
        os.utime(orphan, (1_000_000.0 - age, 1_000_000.0 - age))
    catalogue.compact()
    assert [orphan.exists() for orphan in orphans] == [False, True]


@pytest.mark.parametrize(
    ("run", "found"), [("run-1", True), ("nightly/run-1", True), ("a/b/run-1", True), ("a/b/c/run-1", False)]
)
def test_a_run_finds_the_catalogue_above_it(tmp_path: Path, run: str, *, found: bool) -> None:
    runs = tmp_path / "runs"
    write_checkpoint(runs, 9, [True])
    catalogue_of(runs).update()
    place = CataloguePlace(str(runs), run) if found else None
    assert catalogue_above(f"{runs}/{run}/") == place
    assert catalogue_above(f"file://{runs}/{run}") == (place and CataloguePlace(f"file://{runs}", run))


def test_a_run_without_a_catalogue_above_it_finds_none(tmp_path: Path) -> None:
    assert catalogue_above(str(tmp_path / "run-1")) is None
    assert catalogue_above("/run-1") is None


def test_a_run_that_was_added_by_itself_is_not_read_again_by_an_update(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, [True])
    catalogue = catalogue_of(tmp_path)
    catalogue.update()
    write_checkpoint(tmp_path, 2, [True, False])
    catalogue.add("run-2")
    assert places_of(catalogue) == ["run-1", "run-2"]
    assert catalogue.update().unchanged == 2
    write_checkpoint(tmp_path, 2, [True, True, True])
    catalogue.add("run-2")
    assert counted_results(tmp_path) == {"run-1": 1, "run-2": 3}


def test_runs_are_found_where_they_lie_but_not_in_hidden_directories(tmp_path: Path) -> None:
    for place in (".", "one", "schedule/two", ".hidden"):
        write_checkpoint(tmp_path / place, 1, [True])
    write_checkpoint(tmp_path, 2, [True]).rename(tmp_path / "elsewhere")
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "one" / "run-1" / "summary.json").rename(tmp_path / "one" / "summary.json")
    shutil.copy(tmp_path / "one" / "run-1" / "run_info.json", tmp_path / "one")
    catalogue = catalogue_of(tmp_path)
    catalogue.update()
    assert places_of(catalogue) == ["elsewhere", "one", "run-1", "schedule/two/run-1"]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that an ordinary user may enter and write to: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        yield Path(place)


def test_unreadable_runs_stay_in_the_catalogue(open_directory: Path) -> None:
    """As an ordinary user, whom a directory's rights bind."""
    for step in (1, 2, 3):
        write_checkpoint(open_directory, step, [True]).chmod(0o755)
    code = (
        "import os, sys, time, uuid; from evalrun_results.catalogue.store import Catalogue\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setuid(65534)\n"
        "found = Catalogue(sys.argv[1], now=time.time, new_name=lambda: uuid.uuid4().hex).update()\n"
        "print(found.added, found.removed, found.unchanged, *found.skipped)"
    )

    def update() -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, str(open_directory)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert update() == "3 0 0"
    (open_directory / "run-1").chmod(0)
    (open_directory / "run-2").chmod(0o444)
    assert update() == "0 0 1 run-1: cannot be read run-2: cannot be read"
    for step in (1, 2):
        (open_directory / f"run-{step}").chmod(0o755)  # so that it can be removed
    assert update() == "0 0 3"


def test_update_of_a_missing_directory_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, [True])
    catalogue = catalogue_of(tmp_path)
    catalogue.update()
    tmp_path.rename(tmp_path.with_name("away"))
    with pytest.raises(BadInputError, match=tmp_path.name):
        catalogue.update()
