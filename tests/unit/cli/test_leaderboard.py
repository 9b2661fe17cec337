"""`evalrun leaderboard`: every format, hostile names, and places that hold no run."""

import json
import sys
from pathlib import Path

import pytest
from builders.attested_runs import new_key
from builders.results.stored_runs import verdicts_of, write_run

from evalrun_cli.attestation.trust_files import TrustFiles
from evalrun_cli.comparisons.leaderboard_views import print_leaderboard
from evalrun_runtime.exits import BadInputError, ExitCode


def runs_in(directory: Path, **solved: int) -> Path:
    for name, count in solved.items():
        spec = {"model": {"path": f"<b>{name}</b>|\x1b[31m"}}
        write_run(directory / name, verdicts_of([True] * count + [False] * (100 - count)), run=name, spec=spec)
    return directory


def test_a_directory_of_runs_is_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = runs_in(tmp_path, low=10, high=90, near=88)
    assert print_leaderboard([str(directory)], view="json", output=None) is ExitCode.SUCCEEDED
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    found = {Path(each["places"][0]).name: (each["first_rank"], each["last_rank"]) for each in table["entries"]}
    assert found == {"high": (1, 2), "near": (1, 2), "low": (3, 3)}


@pytest.mark.parametrize("columns", ["20", "60", "110"])
def test_leaderboard_narrow_terminal_cuts_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_leaderboard([str(runs_in(tmp_path, low=10, high=90))], view="text", output=None)
    printed = capsys.readouterr().out
    assert [each for each in ("tokens per solved", "10.0 %", "90.0 %", "100.0 %", " to ") if each not in printed] == []
    assert " run " in printed


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_hostile_names_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], view: str) -> None:
    directory = runs_in(tmp_path, a=10, b=90)
    print_leaderboard([str(directory)], view=view, output=None)
    printed = capsys.readouterr().out
    assert "\x1b[31m" not in printed
    assert "90.0 %" in printed
    if view != "text":
        assert "<b>a</b>" not in printed


def test_markdown_escapes_at_signs_in_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, model in (("a", "@org/team"), ("b", "x @someone")):
        write_run(tmp_path / name, verdicts_of([True] * 50), run=name, spec={"model": {"path": model}})
    print_leaderboard([str(tmp_path)], view="markdown", output=None)
    printed = capsys.readouterr().out
    assert "&#64;org/team" in printed
    assert "@org" not in printed
    assert " @someone" not in printed
    assert "pass@1" in printed


def test_a_page_is_written_to_a_file(tmp_path: Path) -> None:
    directory = runs_in(tmp_path / "runs", a=10, b=90)
    page = tmp_path / "board.html"
    print_leaderboard([str(directory)], view="html", output=page)
    assert page.read_text().startswith("<!doctype html>")


def test_single_suite_is_shown_alone_and_unknown_suite_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("a", 10), ("b", 90)):
        several = [
            result
            for dataset in ("humaneval", "mbpp")
            for result in verdicts_of([True] * count + [False] * (100 - count), dataset=dataset)
        ]
        write_run(tmp_path / name, several, run=name)
    print_leaderboard([str(tmp_path)], datasets=["mbpp"], view="json", output=None)
    found = json.loads(capsys.readouterr().out)
    assert [table["dataset"] for table in found["tables"]] == ["mbpp"]
    assert found["correction"]["tests"] == 1
    with pytest.raises(BadInputError, match="--suite apps: no run has it: the runs have humaneval, mbpp"):
        print_leaderboard([str(tmp_path)], datasets=["mbpp", "apps"], view="json", output=None)


def test_a_directory_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="name a run's outputs, or a directory of runs"):
        print_leaderboard([str(tmp_path)], view="text", output=None)


def test_revocations_without_a_trusted_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="add --trust FILE"):
        print_leaderboard(
            [str(tmp_path)], trust=TrustFiles(revocations=tmp_path / "revoked.jsonl"), view="text", output=None
        )


def test_trust_config_without_an_identity_is_refused(tmp_path: Path) -> None:
    trust = TrustFiles(keys=[tmp_path / "key.pub"], trust_config=tmp_path / "trust.json")
    with pytest.raises(BadInputError, match="--trust-config: says nothing without --identity NAME"):
        print_leaderboard([str(tmp_path)], trust=trust, view="text", output=None)


def test_run_that_needs_an_extra_is_ranked_and_not_attested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    new_key(tmp_path)
    place = runs_in(tmp_path / "runs", a=10) / "a"
    (place / "attestation.json").write_text('{"mediaType": "a bundle"}')
    monkeypatch.setitem(sys.modules, "sigstore", None)  # as where it is not installed
    keys = TrustFiles(keys=[tmp_path / "key.pub"])
    print_leaderboard([str(place)], trust=keys, view="json", output=None)
    said = capsys.readouterr()
    assert json.loads(said.out)["tables"][0]["entries"][0]["attested"] is False
    assert f"{place}: not attested: signatures without a key need the extra sigstore" in said.err
    with pytest.raises(BadInputError, match="need the extra sigstore"):
        print_leaderboard([str(place)], trust=TrustFiles(identity="a", issuer="b"), view="json", output=None)
