"""`evalrun prune`: old runs lose what models wrote, and no figure."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_cli.retention import MARKER, is_due, prune
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

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
    return run


def secrets_in(run: Path) -> list[str]:
    return sorted(file.name for file in run.rglob("*") if file.is_file() and b"SECRET" in file.read_bytes())


@pytest.mark.parametrize(("days", "due"), [(90, True), (91, False), (0, True)])
def test_is_due_after_more_than_the_days(days: int, due: bool) -> None:
    assert is_due(ENDED, NOW, days) is due


def test_prune_old_run_loses_texts_and_keeps_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run")
    before, totals = (run / "summary.json").read_bytes(), StoredRun.open(str(run)).totals()
    assert "results.jsonl" in secrets_in(run)

    prune([tmp_path], days=365, now=NOW, is_dry=False)
    prune([tmp_path], days=30, now=NOW, is_dry=True)
    assert "results.jsonl" in secrets_in(run), "neither a young run nor a dry one is touched"

    prune([tmp_path], days=30, now=NOW, is_dry=False)
    assert secrets_in(run) == []
    assert (run / "summary.json").read_bytes() == before
    assert StoredRun.open(str(run)).totals() == totals
    assert [len(test.stdout.text) for result in StoredRun.open(str(run)).results() for test in result.tests] == [0] * 4
    assert (run / "report.html").exists()
    assert "pruned_at" in json.loads((run / MARKER).read_text())
    assert len((run / "results.jsonl").read_text().splitlines()) == 4

    prune([run], days=30, now=NOW, is_dry=False)
    assert capsys.readouterr().out.rstrip().endswith("pruned already")


def test_prune_directory_without_a_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no finished run here or in subfolders"):
        prune([tmp_path], days=1, now=NOW, is_dry=False)
