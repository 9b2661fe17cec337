"""A run adds itself to the catalogue above it, and never fails for it."""

from pathlib import Path

from builders.catalogued_runs import catalogue_of, write_checkpoint

from evalrun_aggregator.finish.catalogue_entry import add_to_catalogue


def test_a_run_is_added_with_the_key_that_signed_it(tmp_path: Path) -> None:
    catalogue_of(tmp_path).begin()
    run = write_checkpoint(tmp_path, 4, [True])
    assert add_to_catalogue(str(run), signed_by="a-key") == ""
    (row,) = catalogue_of(tmp_path, writer="reader").live_rows()
    assert (row["place"], row["signed_by"]) == ("run-4", "a-key")


def test_without_a_catalogue_nothing_is_written(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path, 4, [True])
    assert add_to_catalogue(str(run), signed_by="") == ""
    assert [each.name for each in tmp_path.iterdir()] == ["run-4"]


def test_catalogue_that_cannot_be_written_gives_a_warning_with_the_remedy(tmp_path: Path) -> None:
    catalogue_of(tmp_path).begin()
    run = write_checkpoint(tmp_path, 4, [True])
    (run / "run_info.json").unlink()
    said = add_to_catalogue(str(run), signed_by="")
    assert said.startswith(f"the run is not in the catalogue of {tmp_path}: run_info.json is missing")
    assert said.endswith(f"evalrun index {tmp_path} adds it")
