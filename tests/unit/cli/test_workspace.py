"""The folder of a run: made once, never overwritten, found again."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalrun_cli.workspace import create, default_directory, read_work_order, reopen
from evalrun_runtime.exits import BadInputError

ORDER = {"run": "demo", "created": "2026-01-01T00:00:00Z", "spec": {"a": 1}}


def test_the_default_name_holds_the_run_and_the_time() -> None:
    assert default_directory("demo", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == Path("outputs/demo_20260102_030405")


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(BadInputError, match="not empty: name another folder"):
        create(tmp_path, ORDER)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_with_a_run_in_it_is_refused_with_the_way_on(tmp_path: Path) -> None:
    create(tmp_path, ORDER)
    with pytest.raises(BadInputError, match=f"add --resume {tmp_path}"):
        create(tmp_path, ORDER)


def test_the_way_on_is_the_commands_own_flag(tmp_path: Path) -> None:
    order = {**ORDER, "responses": ["answers.jsonl"]}
    create(tmp_path / "out", order)
    with pytest.raises(BadInputError, match=r"not empty: add --resume$"):
        create(tmp_path / "out", order)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"file/out"):
        create(tmp_path / "file" / "out", ORDER)


def test_a_folder_in_which_nothing_was_done_is_taken_away_again(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    (workspace.logs / "aggregator.log").write_text("evalrun: refused")
    workspace.discard_unused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["ledger.sqlite3", "notes.txt"])
def test_what_a_run_or_a_user_left_is_not_taken_away(name: str, tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    (workspace.directory / name).write_text("something")
    workspace.discard_unused()
    assert (workspace.directory / name).exists()
    assert workspace.work_order.exists() == (name == "ledger.sqlite3")


def test_a_run_is_found_again(tmp_path: Path) -> None:
    create(tmp_path / "out", ORDER)
    workspace = reopen(tmp_path / "out", {**ORDER, "created": "later"})
    assert read_work_order(workspace.directory) == ORDER


@pytest.mark.parametrize("name", ["spec", "sources", "responses"])
def test_another_spec_or_other_files_are_another_run(tmp_path: Path, name: str) -> None:
    create(tmp_path / "out", ORDER)
    with pytest.raises(BadInputError, match=f"has another {name}"):
        reopen(tmp_path / "out", {**ORDER, name: {"a": ["2"]}})


@pytest.mark.parametrize("content", [None, "{"], ids=["absent", "cut off"])
def test_a_folder_without_a_run_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "work_order.json").write_text(content)
    with pytest.raises(BadInputError, match=r"work_order\.json"):
        read_work_order(tmp_path)
