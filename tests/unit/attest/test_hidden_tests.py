"""Bundles without tests: nothing of a test is in them, and an opening shows later which tests they were."""

import gzip
import json
from pathlib import Path

import pytest
from builders.attested_runs import check_bundle, signed_run, texts_of

from evalrun_attest.archive import read_members
from evalrun_attest.checks import Outcome, check_openings, open_bundle, parse_opened_problems
from evalrun_attest.commitments import Opening, parse_openings, render_opening_line
from evalrun_runtime.exits import BadInputError

ACCEPTED = [True, False, True, None]


@pytest.fixture
def openings(tmp_path: Path) -> dict[tuple[str, str], Opening]:
    """The openings of the bundle in `tmp_path`."""
    _, written = signed_run(tmp_path, ACCEPTED, hide_tests=True)
    lines = [render_opening_line(name, each) for name, problems in written.hidden.items() for each in problems]
    return parse_openings(lines, "openings.jsonl")


def test_bundle_without_tests_holds_no_text_of_a_test(tmp_path: Path, openings: dict[tuple[str, str], Opening]) -> None:
    with (tmp_path / "run.bundle.tar").open("rb") as archive:
        for member in list(read_members(archive)):
            archive.seek(member.start)
            content = archive.read(member.size)
            plain = gzip.decompress(content) if member.name.endswith(".gz") else content
            assert b"hidden output" not in plain, member.name
            assert b"out 0" not in plain, member.name


def test_bundle_without_tests_is_checked_in_part(tmp_path: Path, openings: dict[tuple[str, str], Opening]) -> None:
    findings = check_bundle(tmp_path / "run.bundle.tar", tmp_path / "scratch")
    assert texts_of(findings, Outcome.DIFFERS) == []
    assert texts_of(findings, Outcome.UNKNOWN) == ["humaneval: its tests are hidden: verdicts cannot be judged again"]
    assert "metrics and intervals of humaneval follow from the rows" in texts_of(findings, Outcome.MATCHES)


def test_openings_show_the_tests_that_were_committed_to(
    tmp_path: Path, openings: dict[tuple[str, str], Opening]
) -> None:
    run, _ = open_bundle(tmp_path / "run.bundle.tar", _folder(tmp_path))
    assert run is not None
    some = dict(list(openings.items())[:3])
    assert texts_of(check_openings(run, some), Outcome.MATCHES) == [
        "humaneval: 3 of 4 hidden problems are those committed to"
    ]
    assert [each.problem_id for each in parse_opened_problems(run, some)["humaneval"]] == [key[1] for key in some]


def test_openings_of_other_tests_are_found(tmp_path: Path, openings: dict[tuple[str, str], Opening]) -> None:
    run, _ = open_bundle(tmp_path / "run.bundle.tar", _folder(tmp_path))
    assert run is not None
    key, opening = next(iter(openings.items()))
    easier = {**opening.record, "ground_truth": {"inputs": ["in\n"], "outputs": ["easy\n"]}}
    found = check_openings(run, {key: Opening(opening.salt, easier)})
    assert texts_of(found, Outcome.DIFFERS) == [f"humaneval: {key[1]}: not the tests that were committed to"]


def test_equal_problems_have_different_commitments(tmp_path: Path, openings: dict[tuple[str, str], Opening]) -> None:
    assert len({each.salt for each in openings.values()}) == len(ACCEPTED)


@pytest.mark.parametrize("line", ["", "{", "[]", json.dumps({"dataset": "d", "problem_id": "p", "salt": "no"})])
def test_malformed_opening_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(BadInputError, match=r"openings\.jsonl:1: no opening"):
        parse_openings([line], "openings.jsonl")


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder
