"""The parts of `make release` that are plain functions."""

from collections.abc import Callable
from pathlib import Path

import pytest
import release
from builders.attested_runs import new_key, texts_of

from evalrun_attest.checks import Outcome
from evalrun_attest.keys import SigningKey
from evalrun_attest.trust import Trust

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added
- More.

## [0.1.0] - 2026-11-01

First.
"""


def test_release_notes_of_a_version_end_at_the_next_section() -> None:
    assert release.release_notes(CHANGELOG, "0.2.0") == "### Added\n- More."
    assert release.release_notes(CHANGELOG, "0.1.0") == "First."


def test_release_notes_of_an_unknown_version_are_none() -> None:
    assert release.release_notes(CHANGELOG, "0.2") is None


def test_checksums_name_every_file_but_themselves(tmp_path: Path) -> None:
    (tmp_path / "sbom").mkdir()
    for name in ("b", "sbom/a", "SHA256SUMS"):
        (tmp_path / name).write_text(name)
    assert [line.split("  ")[1] for line in release.checksums(tmp_path).splitlines()] == ["b", "sbom/a"]


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return new_key(tmp_path)


@pytest.fixture
def signed(tmp_path: Path, key: SigningKey) -> Path:
    """A release of two files, signed."""
    directory = tmp_path / "release"
    (directory / "sbom").mkdir(parents=True)
    for name in ("kube_evalrun-0.1.0.whl", "sbom/judge.json"):
        (directory / name).write_text(name)
    release.sign_release(directory, "0.1.0", "c0ffee", key)
    return directory


def test_signed_release_is_verified_by_the_key_that_signed_it(signed: Path, key: SigningKey) -> None:
    findings = release.check_release(signed, Trust([key.public]))
    assert {finding.outcome for finding in findings} == {Outcome.MATCHES}
    assert findings[1].text == "2 files of 0.1.0, built from c0ffee"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "sbom/judge.json").write_text("x"), "not as signed: sbom/judge.json"),
        (lambda folder: (folder / "added.whl").write_text("x"), "not as signed: added.whl"),
        (lambda folder: (folder / "sbom/judge.json").unlink(), "not as signed: sbom/judge.json"),
        (lambda folder: (folder / release.SIGNATURE).unlink(), "cannot be read"),
        (lambda folder: (folder / release.SIGNATURE).write_text("{"), "it is no DSSE envelope"),
    ],
)
def test_release_that_was_changed_after_it_was_signed_differs(
    signed: Path, key: SigningKey, change: Callable[[Path], object], says: str
) -> None:
    change(signed)
    (text,) = texts_of(release.check_release(signed, Trust([key.public])), Outcome.DIFFERS)
    assert says in text


def test_release_signed_by_another_key_differs(signed: Path, tmp_path: Path) -> None:
    other = new_key(tmp_path, "other.pem")
    (text,) = texts_of(release.check_release(signed, Trust([other.public])), Outcome.DIFFERS)
    assert "none of the trusted ones" in text


@pytest.mark.parametrize(
    ("given", "code"), [(["--trust", "key.pub"], 0), ([], 5), (["--trust", "release/sbom/judge.json"], 2)]
)
def test_verify_exit_code_depends_on_the_trusted_key(
    signed: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], code: int
) -> None:
    monkeypatch.chdir(signed.parent)
    assert release.main(["--verify", "release", *given]) == code
