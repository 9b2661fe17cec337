"""The directory of a run: made once, never overwritten, found again."""

import copy
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalrun_api.run_config import RunConfig, parse_run_config
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.runs import rejudge_directory
from evalrun_cli.local.workspace import create, default_directory, order_in, reopen
from evalrun_runtime.exits import BadInputError

SPEC = {
    "model": {"path": "org/model"},
    "datasets": [{"name": "sums", "source": "sums.jsonl"}],
    "protocol": {"temperature": "0.0", "maxNewTokens": 512},
    "endpoints": [{"url": "http://a/v1"}],
}
DOCUMENT = {"run": "demo", "created": "2026-01-01T00:00:00Z", "spec": SPEC, "output_dir": "out"}
ORDER = parse_run_config(DOCUMENT, "test")


def test_the_default_name_holds_the_run_and_the_time() -> None:
    assert default_directory("demo", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == Path("outputs/demo_20260102_030405")


def test_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(BadInputError, match="not empty: name another directory"):
        create(tmp_path, ORDER)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_directory_with_a_run_is_refused_with_the_command_to_resume(tmp_path: Path) -> None:
    create(tmp_path, ORDER)
    with pytest.raises(BadInputError, match=f"go on with its run by evalrun resume {tmp_path}"):
        create(tmp_path, ORDER)


def test_directory_without_answers_is_removed_by_the_command_that_made_it(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    (workspace.directory / "evalrun.yaml").write_text("")
    with closing(sqlite3.connect(workspace.ledger)) as ledger, ledger:
        ledger.execute("CREATE TABLE completions (row INTEGER PRIMARY KEY)")
    reopen(workspace.directory, ORDER).discard_unused()
    assert workspace.ledger.exists()
    workspace.discard_unused()
    assert not workspace.directory.exists()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"file/out"):
        create(tmp_path / "file" / "out", ORDER)


def test_unused_directory_is_removed(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    (workspace.logs / "aggregator.log").write_text("evalrun: refused")
    workspace.discard_unused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["ledger.sqlite3", "notes.txt"])
def test_discard_keeps_files_of_a_run_or_a_user(name: str, tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    (workspace.directory / name).write_text("something")
    workspace.discard_unused()
    assert (workspace.directory / name).exists()
    assert workspace.work_order.exists() == (name == "ledger.sqlite3")


def with_answers(directory: Path) -> Path:
    """Found a run, and store an answer in it."""
    workspace = create(directory, ORDER)
    with closing(sqlite3.connect(workspace.ledger)) as ledger, ledger:
        ledger.execute("CREATE TABLE completions (row INTEGER PRIMARY KEY)")
        ledger.execute("INSERT INTO completions VALUES (1)")
    return directory


def changed(path: str, value: object) -> RunConfig:
    order = copy.deepcopy(DOCUMENT)
    *parents, name = path.split(".")
    inside: Any = order
    for parent in parents:
        inside = inside[int(parent)] if parent.isdigit() else inside.setdefault(parent, {})
    inside[name] = value
    return parse_run_config(order, "test")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("created", "2026-02-02T00:00:00Z"),
        ("spec.endpoints", [{"url": "http://b/v1"}, {"url": "http://c/v1"}]),
        ("spec.judge.sandbox.slots", 4),
        ("spec.gates", [{"baseline": "outputs/main", "dataset": "sums"}]),
        ("spec.cost.gpuHour", "2.5"),
        ("output_dir", "moved"),
    ],
)
def test_change_without_effect_on_answers_is_accepted_on_resume(path: str, value: object, tmp_path: Path) -> None:
    wanted = changed(path, value)
    workspace = reopen(with_answers(tmp_path / "out"), wanted)
    assert order_in(workspace.directory) == wanted.model_copy(update={"created": ORDER.created})


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.protocol.maxNewTokens", 1024, "spec.protocol.maxNewTokens is 512 there and 1024 here"),
        ("spec.model.revision", "abc", 'spec.model.revision is not set there and "abc" here'),
        ("spec.datasets.0.source", "more.jsonl", 'spec.datasets[0].source is "sums.jsonl" there and "more.jsonl" here'),
        ("spec.endpoints.0.model", "other", 'spec.endpoints[].model is [] there and ["other"] here'),
        ("sources", {"sums": ["b"]}, "sources is not set there"),
        ("responses", ["b.jsonl"], 'responses is not set there and ["b.jsonl"] here'),
        ("run", "other", 'run is "demo" there and "other" here'),
    ],
)
def test_change_with_effect_on_answers_is_refused_and_named_on_resume(
    path: str, value: object, said: str, tmp_path: Path
) -> None:
    directory = with_answers(tmp_path / "out")
    with pytest.raises(BadInputError) as caught:
        reopen(directory, changed(path, value))
    assert said in str(caught.value)
    assert order_in(directory) == ORDER


def test_run_without_answers_restarts_with_the_new_configuration(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    with closing(sqlite3.connect(workspace.ledger)) as ledger, ledger:
        ledger.execute("CREATE TABLE completions (row INTEGER PRIMARY KEY)")
    wanted = changed("spec.protocol.maxNewTokens", 1024)
    reopen(workspace.directory, wanted)
    assert order_in(workspace.directory) == wanted
    assert not workspace.ledger.exists()


@pytest.mark.parametrize("content", [None, "{"], ids=["absent", "cut off"])
def test_a_directory_without_a_run_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "work_order.json").write_text(content)
    with pytest.raises(BadInputError, match=r"work_order\.json"):
        order_in(tmp_path)


@pytest.mark.parametrize("name", ["try #2", "half?", "100%25"])
def test_answers_are_found_in_a_directory_of_any_name(name: str, tmp_path: Path) -> None:
    """What a URI gives a meaning to had hidden the ledger: its answers were deleted to start over."""
    directory = with_answers(tmp_path / name)
    with pytest.raises(BadInputError, match="the answers there were made with other settings"):
        reopen(directory, changed("spec.protocol.maxNewTokens", 1024))
    assert (directory / "ledger.sqlite3").exists()


def test_a_ledger_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    workspace.ledger.write_bytes(b"no database at all, but long enough to be looked at " * 100)
    with pytest.raises(BadInputError, match=r"ledger .*/out/ledger.sqlite3: cannot be read"):
        reopen(workspace.directory, changed("spec.protocol.maxNewTokens", 1024))
    assert workspace.ledger.exists()


def test_has_completions_ledger_lacks_another_table_raises(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    with closing(sqlite3.connect(workspace.ledger)) as ledger, ledger:
        ledger.execute("CREATE VIEW completions AS SELECT * FROM lost")
    with pytest.raises(BadInputError, match="no such table"):
        _ = workspace.has_completions


def test_has_completions_ledger_without_tables_returns_false(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    with closing(sqlite3.connect(workspace.ledger)) as ledger, ledger:
        ledger.execute("PRAGMA user_version = 1")
    assert not workspace.has_completions


def test_rejudging_again_after_a_failed_copy_copies_the_ledger_again(tmp_path: Path) -> None:
    workspace = create(tmp_path / "out", ORDER)
    workspace.ledger.write_bytes(b"no database at all, but long enough to be looked at " * 100)
    for _ in range(2):  # the first try has made the directory
        with pytest.raises(BadInputError, match=r"ledger .*/out/ledger.sqlite3: cannot be copied to .*/out_rejudged"):
            rejudge_directory(workspace.directory, output=None, options=LocalOptions())


def test_full_disk_is_a_one_line_error_and_keeps_the_stored_run_configuration(tmp_path: Path) -> None:
    create(tmp_path / "run", ORDER)
    (tmp_path / "run" / "work_order.tmp").symlink_to("/dev/full")
    with pytest.raises(BadInputError, match=r"work_order\.json: cannot be written: No space left on device"):
        reopen(tmp_path / "run", ORDER)
    assert not (tmp_path / "run" / "work_order.tmp").is_symlink()
    assert order_in(tmp_path / "run") == ORDER
