"""`evalrun prune`: old runs lose what models wrote, and no figure."""

import json
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_results.retention import MARKER, is_due, main, prune
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError, ExitCode

ENDED = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 4, 2, tzinfo=UTC)


def a_run(directory: Path) -> Path:
    results = [sample_result(number, 0, ["success" if number % 2 else "wrong_answer"]) for number in range(4)]
    for result in results:
        result.response = "SECRET answer"
        assert result.verdict is not None
        result.verdict.code = "SECRET program"
        result.verdict.tests[0].stdout.text = "SECRET output"
    run = write_run(directory, results, ended_at=ENDED.isoformat())
    (run / "ledger.sqlite3").write_text("SECRET")
    (run / ".view").mkdir()
    (run / ".view" / "00000.words").write_text("SECRET")
    return run


def pruned(places: list[str], *, days: int | None, now: datetime = NOW, is_dry: bool = False) -> list[str]:
    """Prune; returns what was told."""
    told: list[str] = []
    prune(places, days=days, now=now, is_dry=is_dry, report=told.append)
    return told


def secrets_in(run: Path) -> list[str]:
    return sorted(file.name for file in run.rglob("*") if file.is_file() and b"SECRET" in file.read_bytes())


@pytest.mark.parametrize(("days", "due"), [(90, True), (91, False), (0, True)])
def test_is_due_only_once_more_days_have_passed_than_are_retained(days: int, due: bool) -> None:
    assert is_due(ENDED, NOW, days) is due


def test_prune_old_run_loses_texts_and_keeps_figures(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    before, totals = (run / "summary.json").read_bytes(), StoredRun.open(str(run)).totals()
    assert "results.jsonl" in secrets_in(run)

    pruned([str(tmp_path)], days=365, now=NOW, is_dry=False)
    pruned([str(tmp_path)], days=30, now=NOW, is_dry=True)
    assert "results.jsonl" in secrets_in(run), "neither a young run nor a dry one is touched"

    pruned([str(tmp_path)], days=30, now=NOW, is_dry=False)
    assert secrets_in(run) == []
    assert (run / "summary.json").read_bytes() == before
    assert StoredRun.open(str(run)).totals() == totals
    assert [len(test.stdout.text) for result in StoredRun.open(str(run)).results() for test in result.tests] == [0] * 4
    assert (run / "report.html").exists()
    assert "pruned_at" in json.loads((run / MARKER).read_text())
    assert len((run / "results.jsonl").read_text().splitlines()) == 4

    (line,) = pruned([str(run)], days=30)
    assert line.endswith("pruned already")


def test_prune_directory_without_a_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no finished run here or in subdirectories"):
        pruned([str(tmp_path)], days=1, now=NOW, is_dry=False)


@pytest.mark.parametrize(
    ("own", "told"),
    [(30, "pruned"), (365, "kept, it is not older than 365 days"),
     (None, "kept, its spec has no output.retainCompletionsDays")],
)  # fmt: skip
def test_prune_without_days_follows_each_runs_own(own: int | None, told: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    info = json.loads((run / "run_info.json").read_text())
    info["spec"] = {"output": {} if own is None else {"retainCompletionsDays": own}}
    (run / "run_info.json").write_text(json.dumps(info))
    (line,) = pruned([str(tmp_path)], days=None)
    assert line == f"{run}: {told}"
    assert (secrets_in(run) == []) is (told == "pruned")


def test_prune_run_in_an_object_store_loses_texts_and_keeps_figures(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run / "ledger.sqlite3").unlink()  # a cluster's stays on the run's claim
    bucket = fsspec.filesystem("memory")
    bucket.put(str(run), "/evaluations/night", recursive=True)
    totals = StoredRun.open("memory:///evaluations/night").totals()

    (line,) = pruned(["memory:///evaluations"], days=30)
    assert line.endswith("night: pruned")
    files = [str(name) for name in bucket.find("/evaluations/night")]
    assert [name for name in files if b"SECRET" in bucket.cat_file(name)] == []
    assert {MARKER, "report.html", "results.parquet", "summary.json"} <= {name.rpartition("/")[2] for name in files}
    assert StoredRun.open("memory:///evaluations/night").totals() == totals
    assert pruned(["memory:///evaluations"], days=30)[0].endswith("pruned already")
    bucket.rm("/evaluations", recursive=True)


def test_prune_command_prints_pruned_runs_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run")
    assert main([str(tmp_path), "--retain-completions-days=30"]) is ExitCode.SUCCEEDED
    assert capsys.readouterr().out == f"{run}: pruned\n"
    assert main([str(tmp_path / "nothing")]) is ExitCode.BAD_INPUT
    assert "no finished run here" in capsys.readouterr().err
