"""Envelopes: signed, and readable by the published libraries of DSSE and in-toto."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.attested_runs import new_key, signed_run
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope as DsseEnvelope
from securesystemslib.signer._key import SSlibKey

from evalrun_attest.envelope import Envelope, EnvelopeError
from evalrun_attest.keys import PublicKey, SigningKey
from evalrun_runtime.exits import BadInputError


def test_envelope_parse_returns_the_signed_statement(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    envelope = Envelope.parse(Envelope.sign({"b": 1, "a": "é"}, key).to_bytes())
    assert envelope.is_signed
    assert envelope.statement() == {"a": "é", "b": 1}
    assert envelope.public_key.id == key.public.id


def test_envelope_with_another_payload_is_not_signed(tmp_path: Path) -> None:
    envelope = Envelope.sign({"a": 1}, new_key(tmp_path))
    assert not Envelope(b'{"a":2}', envelope.signature, envelope.key).is_signed


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("{", "{ ", 1),
        lambda text: text + " ",
        lambda text: text.replace('"payloadType"', '"payloadtype"'),
        lambda text: text.replace('"keyid": "', '"keyid": "0'),
        lambda text: json.dumps(json.loads(text)),
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: "[" * 100_000,
    ],
)
def test_envelope_in_another_spelling_is_refused(tmp_path: Path, change: Callable[[str], str]) -> None:
    text = Envelope.sign({"a": 1}, new_key(tmp_path)).to_bytes().decode()
    with pytest.raises(EnvelopeError):
        Envelope.parse(change(text).encode())


def test_envelope_is_verified_by_securesystemslib(tmp_path: Path) -> None:
    _, written = signed_run(tmp_path, [True, False])
    document = json.loads(written.envelope.to_bytes())
    key_id = document["signatures"][0]["keyid"]
    envelope = DsseEnvelope.from_dict(document)
    public = {
        "keytype": "ed25519",
        "scheme": "ed25519",
        "keyval": {"public": _raw_public(document["signatures"][0]["publicKey"])},
    }
    accepted = envelope.verify([SSlibKey.from_dict(key_id, public)], threshold=1)
    assert list(accepted) == [key_id]


def _raw_public(pem: str) -> str:
    return load_pem_public_key(pem.encode()).public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def test_statement_is_valid_for_in_totos_library(tmp_path: Path) -> None:
    _, written = signed_run(tmp_path, [True, False])
    found = Statement([], "", {})
    json_format.ParseDict(written.envelope.statement(), found.pb)
    found.validate()
    names = {subject.name for subject in found.pb.subject}
    assert {"results.jsonl", "summary.json", "problems/humaneval.jsonl"} <= names


def test_key_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "rsa.pem"
    rsa = generate_private_key(65537, 2048)
    other.write_bytes(rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(BadInputError, match="another algorithm than Ed25519: openssl genpkey"):
        SigningKey.read(other)


def test_key_with_passphrase_is_refused(tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    private = Ed25519PrivateKey.generate()
    locked.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    with pytest.raises(BadInputError, match="passphrase: write one without"):
        SigningKey.read(locked)


def test_file_without_a_public_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("no key")
    with pytest.raises(BadInputError, match=r"key\.pub: no PEM public key"):
        PublicKey.read(tmp_path / "key.pub")
