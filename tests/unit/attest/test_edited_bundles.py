"""Bundles with single edits: each one must be found. `make edit-bundles` tries 10,000."""

import gzip
import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.attested_runs import check_bundle, edit_row, new_key, signed_run, some_problems, texts_of

from evalrun_attest.archive import read_members
from evalrun_attest.bundle import write_bundle
from evalrun_attest.checks import Outcome
from evalrun_attest.envelope import Envelope, EnvelopeError
from evalrun_attest.trust import Trust, check_signer
from evalrun_runtime.exits import BadInputError

EDITS = int(os.environ.get("EVALRUN_BUNDLE_EDITS", "300"))
ACCEPTED = [True, False, True, None, True, False, True, True]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed bundle of eight answers."""
    return signed_run(tmp_path_factory.mktemp("signed"), ACCEPTED)[0]


def test_unedited_bundle_matches(bundle: Path, tmp_path: Path) -> None:
    findings = check_bundle(bundle, tmp_path / "scratch")
    assert {finding.outcome for finding in findings} == {Outcome.MATCHES}
    assert "8 rows have the Merkle roots of the statement" in texts_of(findings, Outcome.MATCHES)


def test_every_flipped_bit_is_found(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    chance = random.Random(20261124)
    unseen = []
    for number in range(EDITS):
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        edited = bytearray(content)
        edited[place] ^= 1 << bit
        if not _is_found(bytes(edited), tmp_path / str(number)):
            unseen.append((place, bit))
    assert unseen == []


def test_every_bit_of_an_envelope_counts(bundle: Path) -> None:
    """Signature and key are texts of formats that have several spellings of one thing: base64 and PEM."""
    content = _members_of(bundle)["attestation.json"]
    first = content.index(b'"signatures"')
    places = [*range(0, first, 37), *range(first, len(content))]
    unseen = []
    for place in places:
        for bit in range(8):
            edited = bytearray(content)
            edited[place] ^= 1 << bit
            try:
                found = Envelope.parse(bytes(edited))
            except EnvelopeError:
                continue
            if found.is_signed:
                unseen.append((place, bit))
    assert unseen == []


def _is_found(content: bytes, folder: Path) -> bool:
    folder.mkdir()
    (folder / "edited.tar").write_bytes(content)
    findings = check_bundle(folder / "edited.tar", folder / "scratch")
    shutil.rmtree(folder)
    return bool(texts_of(findings, Outcome.DIFFERS))


Members = dict[str, bytes]


def _members_of(bundle: Path) -> Members:
    with bundle.open("rb") as archive:
        found = {}
        for member in list(read_members(archive)):
            archive.seek(member.start)
            found[member.name] = archive.read(member.size)
        return found


def _archive_of(members: Members) -> bytes:
    sink = io.BytesIO()
    for name, content in members.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        sink.write(entry.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512))
    sink.write(bytes(1024))
    return sink.getvalue()


def _with_rows(members: Members, change: Callable[[list[bytes]], list[bytes]]) -> Members:
    lines = gzip.decompress(members["results.jsonl.gz"]).splitlines(keepends=True)
    return members | {"results.jsonl.gz": gzip.compress(b"".join(change(lines)), mtime=0)}


ROW_EDITS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "first row dropped": lambda rows: rows[1:],
    "last row dropped": lambda rows: rows[:-1],
    "row doubled": lambda rows: [rows[0], *rows],
    "rows swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "verdict flipped": lambda rows: [rows[0].replace(b'"accepted":true', b'"accepted":false'), *rows[1:]],
    "answer changed": lambda rows: [rows[0].replace(b"print", b"Print"), *rows[1:]],
    "newline lost": lambda rows: [*rows[:-1], rows[-1].rstrip()],
}


@pytest.mark.parametrize("name", ROW_EDITS)
def test_edited_rows_are_found(bundle: Path, tmp_path: Path, name: str) -> None:
    content = _archive_of(_with_rows(_members_of(bundle), ROW_EDITS[name]))
    assert _is_found(content, tmp_path / "edited")


def test_archive_made_again_of_the_same_members_is_the_same(bundle: Path) -> None:
    """The edits above change what they say, and nothing else."""
    assert _archive_of(_members_of(bundle)) == bundle.read_bytes()


@pytest.mark.parametrize("name", ["summary.json.gz", "run_info.json.gz", "problems/humaneval.jsonl.gz"])
def test_file_of_another_run_is_found(bundle: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "other").mkdir()
    other, _ = signed_run(tmp_path / "other", [*ACCEPTED, True])
    content = _archive_of(_members_of(bundle) | {name: _members_of(other)[name]})
    assert _is_found(content, tmp_path / "edited")


def test_statement_of_another_run_is_found(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, _ = signed_run(tmp_path / "other", [True] * len(ACCEPTED))
    content = _archive_of(_members_of(bundle) | {"attestation.json": _members_of(other)["attestation.json"]})
    assert _is_found(content, tmp_path / "edited")


def test_old_signature_under_a_new_statement_is_found(bundle: Path, tmp_path: Path) -> None:
    members = _members_of(bundle)
    old = Envelope.parse(members["attestation.json"])
    statement = old.statement()
    statement["predicate"]["datasets"]["humaneval"]["metrics"]["accepted_at_1"]["value"] = 1.0
    forged = Envelope(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode(), old.signature, old.key)
    assert _is_found(_archive_of(members | {"attestation.json": forged.to_bytes()}), tmp_path / "edited")


def test_statement_signed_by_an_untrusted_key_differs(bundle: Path, tmp_path: Path) -> None:
    envelope = Envelope.parse(_members_of(bundle)["attestation.json"])
    mine = new_key(tmp_path)
    forged = Envelope.sign(envelope.statement(), mine)
    trust = Trust([envelope.public_key])
    assert [each.outcome for each in check_signer(forged, trust)] == [Outcome.DIFFERS]
    assert [each.outcome for each in check_signer(envelope, trust)] == [Outcome.MATCHES]


def test_member_added_or_renamed_is_found(bundle: Path, tmp_path: Path) -> None:
    members = _members_of(bundle)
    assert _is_found(_archive_of(members | {"more.txt.gz": gzip.compress(b"more")}), tmp_path / "added")
    renamed = {name.replace("metrics", "metrixx"): content for name, content in members.items()}
    assert _is_found(_archive_of(renamed), tmp_path / "renamed")


def test_name_that_leads_out_of_the_folder_is_refused(bundle: Path, tmp_path: Path) -> None:
    members = {name.replace("metrics.json", "../metrics.json"): each for name, each in _members_of(bundle).items()}
    assert _is_found(_archive_of(members), tmp_path / "edited")
    assert not (tmp_path / "metrics.json").exists()


def test_member_that_unpacks_to_more_than_stated_is_refused(bundle: Path, tmp_path: Path) -> None:
    members = _members_of(bundle) | {"metrics.json.gz": gzip.compress(bytes(50_000_000), mtime=0)}
    (tmp_path / "edited.tar").write_bytes(_archive_of(members))
    findings = check_bundle(tmp_path / "edited.tar", tmp_path / "scratch")
    assert "longer than its statement says" in texts_of(findings, Outcome.DIFFERS)[-1]
    assert (tmp_path / "scratch" / "metrics.json").stat().st_size < 2_000_000


def test_signer_whose_figures_do_not_follow_from_the_rows_is_found(tmp_path: Path) -> None:
    """A signature proves who said it, not that it is so: the figures are computed again."""
    key = new_key(tmp_path)
    bundle, written = signed_run(tmp_path, ACCEPTED, key=key)
    statement = written.envelope.statement()
    statement["predicate"]["datasets"]["humaneval"]["metrics"]["accepted_at_1"]["value"] = 1.0
    lie = Envelope.sign(statement, key)
    (tmp_path / "lie.tar").write_bytes(_archive_of(_members_of(bundle) | {"attestation.json": lie.to_bytes()}))
    found = texts_of(check_bundle(tmp_path / "lie.tar", tmp_path / "scratch"), Outcome.DIFFERS)
    assert found == [
        "humaneval: the rows do not give metrics.accepted_at_1",
        "humaneval: summary.json says other figures than the statement",
    ]


def test_data_changed_since_the_run_is_not_signed(tmp_path: Path) -> None:
    signed_run(tmp_path, ACCEPTED)
    with pytest.raises(BadInputError, match="no longer holds the problems that the run was judged by"):
        write_bundle(
            tmp_path / "run",
            {"humaneval": some_problems(3)},
            new_key(tmp_path),
            tmp_path / "second.tar",
            hide_tests=False,
            make_salt=bytes,
        )


def test_results_edited_before_signing_show_in_the_figures(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    signed_run(tmp_path, ACCEPTED, key=key)
    edit_row(tmp_path / "run", 1, accepted=True, final_status="success")
    write_bundle(
        tmp_path / "run",
        {"humaneval": some_problems(len(ACCEPTED))},
        key,
        tmp_path / "second.tar",
        hide_tests=False,
        make_salt=bytes,
    )
    found = texts_of(check_bundle(tmp_path / "second.tar", tmp_path / "scratch"), Outcome.DIFFERS)
    assert len(found) == 1
    assert found[0].startswith("humaneval: the rows do not give counts.accepted")
