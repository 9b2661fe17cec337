"""The parts of `make release` that are plain functions."""

from pathlib import Path

import release

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
