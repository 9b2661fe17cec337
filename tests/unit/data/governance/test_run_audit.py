"""Which data a run refuses, by what lies beside it and by its policy."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.governance import contest_row, prepared, write_plan, write_rows

from evalrun_data.governance.manifest import read_manifest
from evalrun_data.governance.prepared_check import read_audit
from evalrun_data.governance.run_audit import (
    COPY_ELSEWHERE,
    AuditFailedError,
    AuditPolicy,
    DatasetAudit,
    audit_dataset,
    choose_role,
)
from evalrun_data.readers import load_problems
from evalrun_data.records import Problem
from evalrun_data.sources import Source


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_rows(tmp_path / "valid.jsonl", [contest_row(n, dataset="valid") for n in range(3)])
    write_rows(tmp_path / "leaky.jsonl", [contest_row(n, dataset="leaky") for n in (9, 10)])
    write_rows(tmp_path / "train.jsonl", [contest_row(n, dataset="train") for n in (9, 12)])
    roles = {"valid": "dev", "leaky": "test", "train": "train"}
    datasets = [{"name": name, "source": f"{name}.jsonl", "role": role} for name, role in roles.items()]
    assert prepared(write_plan(tmp_path, datasets), tmp_path / "data").state == "failed"
    return tmp_path / "data"


def audited(
    directory: Path, name: str = "valid", problems: list[Problem] | None = None, policy: AuditPolicy | None = None
) -> DatasetAudit | None:
    source = str(directory / f"{name}.parquet")
    records = load_problems(source, name) if problems is None else problems
    return audit_dataset(name, Source(source), records, manifest=None, policy=policy)


def test_a_manifest_beside_the_data_is_found_and_recorded(directory: Path) -> None:
    audit = audited(directory)
    assert audit is not None
    manifest = directory / "data_manifests/valid.jsonl"
    assert audit.manifest == str(manifest)
    assert audit.manifest_sha256 == read_manifest(str(manifest)).sha256
    assert audit.audit_sha256 == read_audit(str(directory / "data_manifests/audit.json")).sha256
    assert (audit.state, audit.role, audit.warnings) == ("passed", "dev", ())
    assert sorted(audit.files) == ["valid/audit.json", "valid/audit_report.md", "valid/manifest.jsonl"]
    assert audit.files["valid/manifest.jsonl"] == manifest.read_bytes()


def test_a_raw_copy_one_directory_deeper_finds_the_same_manifest(directory: Path) -> None:
    source = str(directory / "valid" / "valid.jsonl")
    audit = audit_dataset("valid", Source(source), load_problems(source, "valid"), manifest=None, policy="Require")
    assert audit is not None
    assert audit.state == "passed"


def test_data_whose_audit_failed_is_refused(directory: Path) -> None:
    with pytest.raises(
        AuditFailedError, match=r"^AuditFailed: dataset 'leaky': its audit failed: see .*audit_report.md: "
    ):
        audited(directory, "leaky")
    warned = audited(directory, "leaky", policy="Warn")
    assert warned is not None
    assert len(warned.warnings) == 1
    assert audited(directory, "leaky", policy="Ignore") is None


def changed(problems: list[Problem], how: str) -> list[Problem]:
    if how == "fewer":
        return problems[:-1]
    if how == "more":
        return [*problems, replace(problems[0], problem_id="new")]
    return [replace(problems[0], prompt="Another task."), *problems[1:]]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fewer", "problem 'p2' of the manifest is missing"),
        ("more", "problem 'new' is not in the manifest"),
        ("other", "the prompt of problem 'p0' is another one than in the manifest"),
    ],
)
def test_records_that_are_not_those_of_the_manifest_are_refused(directory: Path, how: str, message: str) -> None:
    records = changed(load_problems(str(directory / "valid.parquet"), "valid"), how)
    with pytest.raises(AuditFailedError, match=message):
        audited(directory, problems=records)
    warned = audited(directory, problems=records, policy="Warn")
    assert warned is not None
    assert message in warned.warnings[0]


def test_a_manifest_that_was_changed_after_the_audit_is_refused(directory: Path) -> None:
    manifest = directory / "data_manifests/valid.jsonl"
    manifest.write_text(manifest.read_text().replace('"split": ""', '"split": "x"'))
    with pytest.raises(AuditFailedError, match=r"its manifest is not the one that .*audit.json audited"):
        audited(directory)


def test_phase_0s_own_manifest_has_no_role_and_no_audit_beside_it(tmp_path: Path) -> None:
    write_rows(tmp_path / "valid.jsonl", [contest_row(1, dataset="valid")])
    (problem,) = load_problems(str(tmp_path / "valid.jsonl"))
    line = {
        "dataset": "valid",
        "split": "valid",
        "problem_id": problem.problem_id,
        "prompt_sha256": problem.prompt_sha256,
        "prompt_length": len(problem.prompt),
        "num_test_cases": 2,
        "version": "1",
        "source_url": "https://example.org",
    }
    manifest = tmp_path / "data_manifests/valid.jsonl"
    manifest.parent.mkdir()
    manifest.write_text(json.dumps(line) + "\n")
    source = str(tmp_path / "valid.jsonl")
    audit = audit_dataset("valid", Source(source), [problem], manifest=None, policy=None)
    assert audit is not None
    assert (audit.state, len(audit.warnings)) == ("missing", 1)
    with pytest.raises(AuditFailedError, match="no audit lies beside its manifest"):
        audit_dataset("valid", Source(source), [problem], manifest=str(manifest), policy="Require")


def test_policy_require_refuses_data_without_a_manifest(tmp_path: Path) -> None:
    write_rows(tmp_path / "valid.jsonl", [contest_row(1, dataset="valid")])
    source = str(tmp_path / "valid.jsonl")
    problems = load_problems(source)
    assert audit_dataset("valid", Source(source), problems, manifest=None, policy=None) is None
    with pytest.raises(AuditFailedError, match="names no manifest, and none lies beside"):
        audit_dataset("valid", Source(source), problems, manifest=None, policy="Require")


def test_a_manifest_that_cannot_be_read_is_an_audit_that_failed(tmp_path: Path) -> None:
    with pytest.raises(AuditFailedError, match=r"AuditFailed: dataset 'valid': no.jsonl: no such file"):
        audit_dataset("valid", Source("builtin:demo", tmp_path), [], manifest="no.jsonl", policy="Warn")


@pytest.mark.parametrize(
    ("name", "given", "role"),
    [("humaneval", None, "test"), ("humaneval", "dev", "dev"), ("mbpp_reg", None, "dev"), ("mine", None, "")],
)
def test_choose_role_prefers_the_given_role_to_that_of_the_benchmark(name: str, given: str | None, role: str) -> None:
    assert choose_role(name, given, None, []) == role


def test_refused_audit_names_a_remedy_that_the_command_offers(directory: Path) -> None:
    source = str(directory / "leaky.parquet")
    problems = load_problems(source, "leaky")
    with pytest.raises(AuditFailedError, match=r"--allow for overlaps that are fine\), or write auditPolicy: Warn"):
        audit_dataset("leaky", Source(source), problems, manifest=None, policy=None)
    with pytest.raises(AuditFailedError, match="or name a copy of the file in another directory"):
        audit_dataset("leaky", Source(source), problems, manifest=None, policy=None, remedy=COPY_ELSEWHERE)
