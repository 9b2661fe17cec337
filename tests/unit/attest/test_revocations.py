"""Revocations: only the signer's counts, and a damaged list never passes for an empty one."""

from pathlib import Path

import pytest
from builders.attested_runs import new_key, signed_run

from evalrun_attest.checks import Outcome
from evalrun_attest.envelope import Envelope
from evalrun_attest.revocations import PREDICATE_TYPE, parse_revocations, revoke, to_line
from evalrun_attest.trust import Trust, check_signer
from evalrun_runtime.exits import BadInputError

NOW = "2026-11-25T00:00:00+00:00"


def test_revoked_attestation_differs(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    _, written = signed_run(tmp_path, [True], key=key)
    line = to_line(revoke(written.envelope, key, "wrong tests", NOW))
    revoked = parse_revocations([line, "\n"], "revoked.jsonl")
    found = check_signer(written.envelope, Trust([key.public], revocations=revoked))
    assert [each.outcome for each in found] == [Outcome.MATCHES, Outcome.DIFFERS]
    assert found[1].text == f"revoked by its signer at {NOW}: wrong tests"


def test_revocation_by_another_key_does_not_count(tmp_path: Path) -> None:
    key, other = new_key(tmp_path), new_key(tmp_path, "other.pem")
    _, written = signed_run(tmp_path, [True], key=key)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "attestation.json", "digest": {"sha256": written.envelope.payload_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"reason": "spite", "revokedAt": NOW},
    }
    found = parse_revocations([to_line(Envelope.sign(statement, other))], "revoked.jsonl")
    trust = Trust([key.public], revocations=found)
    assert [each.outcome for each in check_signer(written.envelope, trust)] == [Outcome.MATCHES]


def test_revocation_with_another_key_is_refused(tmp_path: Path) -> None:
    _, written = signed_run(tmp_path, [True])
    with pytest.raises(BadInputError, match="revoke it with that one"):
        revoke(written.envelope, new_key(tmp_path, "other.pem"), "spite", NOW)


def test_damaged_list_of_revocations_is_refused(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    _, written = signed_run(tmp_path, [True], key=key)
    line = to_line(revoke(written.envelope, key, "wrong tests", NOW))
    for damaged in ("{}", "no JSON", line[:-9], line.replace('"sig":"', '"sig":"A')):
        with pytest.raises(BadInputError, match=r"revoked\.jsonl:1: no signed revocation"):
            parse_revocations([damaged], "revoked.jsonl")
