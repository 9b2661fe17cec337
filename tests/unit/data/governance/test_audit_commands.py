"""The audit as a command: an overlap gives exit code 1 after everything was written; an allow file settles it."""

import hashlib
import json
from pathlib import Path

import pytest
from builders.governance import contest_row, json_lines, write_plan, write_rows

from evalrun_data.governance.__main__ import main


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    train = [contest_row(n, dataset="c_train") for n in range(6)]
    copied = {**contest_row(100, dataset="c_test"), "prompt": train[3]["prompt"]}
    nearly = {**contest_row(101, dataset="c_test"), "prompt": f"# {train[4]['prompt']}!".replace(" ", "\n")}
    write_rows(tmp_path / "train.jsonl", train)
    write_rows(tmp_path / "test.jsonl", [contest_row(50, dataset="c_test"), copied, nearly])
    write_rows(tmp_path / "clean.jsonl", [contest_row(70, dataset="clean")])
    datasets = [
        {"name": "c_train", "source": "train.jsonl", "role": "train", "source_url": "https://example.org/c"},
        {"name": "c_test", "source": "test.jsonl", "role": "test", "source_url": "https://example.org/c"},
        {"name": "clean", "source": "clean.jsonl", "role": "dev"},
    ]
    return write_plan(tmp_path, datasets)


def test_overlap_fails_the_command_after_all_files_were_written(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", str(plan), "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert "overlap (exact, 1.00): c_train/p3 and c_test/p100" in said.err
    assert "overlap (near, 1.00): c_train/p4 and c_test/p101" in said.err
    assert "the audit failed: 2 overlaps: see " in said.err
    assert "clean: 1 records, 0 duplicates removed, role dev, audit passed" in said.out
    assert len(json_lines(tmp_path / "out/data_manifests/c_test.jsonl")) == 3
    report = (tmp_path / "out/data_manifests/audit_report.md").read_text()
    between = report.partition("## 2. Overlap between splits")[2].partition("## 3.")[0]
    assert "| exact | c_train/p3 | c_test/p100 | 1.000 | 1.000 | **not allowed** |" in between
    assert "| c_train | c_test | 1 | 1 | **not allowed** |" in report
    assert "| c_train | clean | 0 | 0 | passed |" in report
    assert main(["show", str(tmp_path / "out")]) == 1
    states = {name: d["state"] for name, d in audit_of(tmp_path / "out")["datasets"].items()}
    assert states == {"c_train": "failed", "c_test": "failed", "clean": "passed"}


def audit_of(directory: Path) -> dict[str, dict[str, dict[str, str]]]:
    content: dict[str, dict[str, dict[str, str]]] = json.loads((directory / "data_manifests/audit.json").read_text())
    return content


def test_allow_file_passes_the_audit_and_unused_allowances_are_named(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["prepare", str(plan), "--output", str(tmp_path / "out")])
    entries = [
        {"first": "c_test/p100", "second": "c_train/p3", "reason": "known and reported"},
        {"first": "c_train", "second": "c_test", "kind": "near", "reason": "looked at"},
        {"first": "c_train/p0", "second": "clean", "reason": "no longer there"},
    ]
    (tmp_path / "allow.yaml").write_text(json.dumps(entries))
    assert main(["audit", str(tmp_path / "out"), "--allow", str(tmp_path / "allow.yaml")]) == 0
    report = (tmp_path / "out/data_manifests/audit_report.md").read_text()
    assert "allowed: known and reported" in report
    assert "## Allowances that cover nothing\n\n- c_train/p0 and clean: no longer there" in report
    assert main(["show", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "out")]) == 1, "without the allow file they are not allowed again"


def test_show_gives_the_hash_that_sha256sum_gives_and_finds_a_changed_manifest(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["prepare", str(plan), "--output", str(tmp_path / "out")])
    manifest = tmp_path / "out/data_manifests/clean.jsonl"
    capsys.readouterr()
    main(["show", str(tmp_path / "out")])
    assert f"manifest {hashlib.sha256(manifest.read_bytes()).hexdigest()}" in capsys.readouterr().out
    manifest.write_text(manifest.read_text().replace('"role": "dev"', '"role": "test"'))
    assert main(["show", str(tmp_path / "out")]) == 2
    assert "clean.jsonl: was changed after the audit: run `evalrun data audit" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["audit", "show"])
def test_unprepared_directory_is_refused_with_the_reason(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert "is no prepared directory" in capsys.readouterr().err
    (tmp_path / ".preparing").mkdir()
    assert main([command, str(tmp_path)]) == 2
    assert "the preparation was interrupted: run `evalrun data prepare` again, it goes on" in capsys.readouterr().err
