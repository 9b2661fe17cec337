"""Attestations signed by an identity: the published package signs and verifies, against an instance on loopback."""

import base64
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders.attested_runs import check_bundle, new_key, signed_run, texts_of
from builders.sigstore_instance import ISSUER, NAME, Authority, Instance, Log, served
from sigstore.dsse import Statement
from sigstore.oidc import IdentityToken
from sigstore.sign import SigningContext

from evalrun_attest.checks import Outcome, open_folder
from evalrun_attest.envelope import EnvelopeError, encode_envelope, encode_statement
from evalrun_attest.keyless import KeylessEnvelope, KeylessSigner, TrustRoot
from evalrun_attest.revocations import parse_revocations, revoke, to_line
from evalrun_attest.signatures import Identity, SignedStatement, parse_signed
from evalrun_attest.trust import Trust, check_signer
from evalrun_cli.attestation.requirement import find_signer
from evalrun_runtime.exits import BadInputError

SIGNER = Identity(NAME, ISSUER)
STATEMENT: dict[str, Any] = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "summary.json", "digest": {"sha256": "0" * 64}, "annotations": {"length": 1}}],
    "predicateType": "https://example.org/v1",
    "predicate": {"text": "é"},
}
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Loopback without a proxy, and a folder where the package keeps the public trust root."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def instance(environment: None) -> Iterator[Instance]:
    with served(Instance.create()) as found:
        yield found


@pytest.fixture(scope="module")
def root(instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> TrustRoot:
    return TrustRoot.read(instance.write_trust_config(tmp_path_factory.mktemp("trust")))


@pytest.fixture(scope="module")
def signed(instance: Instance, root: TrustRoot) -> KeylessEnvelope:
    return KeylessSigner(root, instance.authority.token).sign(STATEMENT)


def sign_at(instance: Instance, folder: Path, statement: dict[str, Any] = STATEMENT) -> KeylessEnvelope:
    """Sign at an instance that nobody else has to believe."""
    with served(instance):
        config = TrustRoot.read(instance.write_trust_config(folder, "other.json")).config
        with SigningContext.from_trust_config(config).signer(IdentityToken(instance.authority.token())) as signer:
            bundle = signer.sign_dsse(Statement(encode_statement(statement)))
    return KeylessEnvelope.parse(encode_envelope(json.loads(bundle.to_json())))


def edited(signed: KeylessEnvelope, edit: Edit) -> bytes:
    document = json.loads(signed.to_bytes())
    edit(document)
    return encode_envelope(document)


def entry_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["verificationMaterial"]["tlogEntries"][0]
    return found


def only_text(signed: SignedStatement, trust: Trust, outcome: Outcome) -> str:
    (found,) = texts_of(check_signer(signed, trust), outcome)
    return found


def test_identity_that_is_trusted_matches(signed: KeylessEnvelope, root: TrustRoot) -> None:
    again = parse_signed(signed.to_bytes())
    assert again.is_signed
    assert again.statement() == STATEMENT
    assert json.loads(signed.to_bytes())["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    found = check_signer(again, Trust(identity=SIGNER, root=root))
    assert [each.outcome for each in found] == [Outcome.MATCHES, Outcome.NOTED]
    assert found[0].text == f"signed by the trusted identity {NAME} ({ISSUER})"
    assert "not known without a network" in found[1].text


def test_trust_in_others_does_not_reach_the_signer(signed: KeylessEnvelope, root: TrustRoot, tmp_path: Path) -> None:
    nobody = only_text(signed, Trust(root=root), Outcome.UNKNOWN)
    assert nobody.endswith(f"nobody said whether to trust it (--identity {NAME} --issuer {ISSUER})")
    other = Trust(identity=Identity("eve@example.org", ISSUER), root=root)
    assert f"the identity is {NAME}, not eve@example.org" in only_text(signed, other, Outcome.DIFFERS)
    elsewhere = Trust(identity=Identity(NAME, "https://elsewhere.example.org"), root=root)
    text = only_text(signed, elsewhere, Outcome.DIFFERS)
    assert f"the issuer is {ISSUER}, not https://elsewhere.example.org" in text
    keys = Trust([new_key(tmp_path).public], root=root)
    assert "which is none of the trusted keys" in only_text(signed, keys, Outcome.DIFFERS)


def without_a_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").touch()
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder / "file" / "below"))


def test_trust_in_keys_alone_asks_no_authority(
    signed: KeylessEnvelope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_a_home(tmp_path, monkeypatch)
    text = only_text(signed, Trust([new_key(tmp_path).public]), Outcome.DIFFERS)
    assert text.startswith(f"the signature names {SIGNER}, which is none of the trusted keys")


def test_public_root_that_cannot_be_stored_names_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_home(tmp_path, monkeypatch)
    with pytest.raises(BadInputError, match=r"set HOME .* to a directory that may be written"):
        TrustRoot.read_stored()


def test_key_is_not_the_trusted_identity(tmp_path: Path) -> None:
    _, written = signed_run(tmp_path, [True])
    assert "none of the trusted ones" in only_text(written.envelope, Trust(identity=SIGNER), Outcome.DIFFERS)


def test_public_instance_does_not_vouch_for_a_private_one(signed: KeylessEnvelope) -> None:
    text = only_text(signed, Trust(identity=SIGNER), Outcome.DIFFERS)
    assert "Sigstore's public instance vouches for no such certificate" in text
    assert "--trust-config" in text


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


FORGERIES: dict[str, tuple[Callable[[Instance], Instance], str]] = {
    "another authority that knows the name": (
        lambda right: Instance(Authority(right.authority.now), right.log),
        "vouches for no such certificate",
    ),
    "another log of certificates": (
        lambda right: Instance(replace(right.authority, log_key=Authority(right.authority.now).log_key), right.log),
        "failed to verify SCT",
    ),
    "another log": (lambda right: Instance(right.authority, Log(right.log.now)), "invalid log entry"),
    "a certificate that had expired by the log's time": (
        lambda right: Instance(right.authority, Log(in_an_hour, right.log.key)),
        "vouches for no such certificate at that time",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_signature_that_the_instance_does_not_vouch_for_differs(
    instance: Instance, root: TrustRoot, tmp_path: Path, forgery: str
) -> None:
    make, message = FORGERIES[forgery]
    forged = sign_at(make(instance), tmp_path)
    assert forged.is_signed
    assert forged.signer == SIGNER
    text = only_text(forged, Trust(identity=SIGNER, root=root), Outcome.DIFFERS)
    assert text.startswith(f"the signature names {SIGNER}: ")
    assert message in text


def test_signer_refuses_an_answer_that_cannot_be_verified(instance: Instance, tmp_path: Path) -> None:
    late = Instance(instance.authority, Log(in_an_hour))
    with served(late):
        root = TrustRoot.read(late.write_trust_config(tmp_path))
        with pytest.raises(BadInputError, match="its answer cannot be verified"):
            KeylessSigner(root, late.authority.token).sign(STATEMENT)


def test_entry_of_another_statement_differs(instance: Instance, root: TrustRoot, signed: KeylessEnvelope) -> None:
    other = KeylessSigner(root, instance.authority.token).sign({**STATEMENT, "predicate": {}})
    entry = entry_of(json.loads(other.to_bytes()))

    def swap(document: dict[str, Any]) -> None:
        document["verificationMaterial"]["tlogEntries"] = [entry]

    found = parse_signed(edited(signed, swap))
    text = only_text(found, Trust(identity=SIGNER, root=root), Outcome.DIFFERS)
    assert "log entry payload hash does not match bundle" in text


@pytest.mark.parametrize("part", ["inclusionProof", "inclusionPromise"])
def test_bundle_without_proof_is_refused(signed: KeylessEnvelope, part: str) -> None:
    with pytest.raises(EnvelopeError):
        parse_signed(edited(signed, lambda document: entry_of(document).pop(part)))


def test_shortened_proof_differs(signed: KeylessEnvelope, root: TrustRoot) -> None:
    found = parse_signed(edited(signed, lambda document: entry_of(document)["inclusionProof"]["hashes"].pop()))
    assert "wrong size" in only_text(found, Trust(identity=SIGNER, root=root), Outcome.DIFFERS)


def test_statement_that_was_changed_is_not_signed(signed: KeylessEnvelope) -> None:
    nothing = base64.b64encode(b"{}").decode()
    found = parse_signed(edited(signed, lambda document: document["dsseEnvelope"].update(payload=nothing)))
    assert not found.is_signed


def test_every_changed_bit_is_found_outside_of_the_unsigned_log_name(signed: KeylessEnvelope, root: TrustRoot) -> None:
    """Sigstore's form has that one: it stands before the log's signature, and is looked at by no verifier."""
    content, trust = signed.to_bytes(), Trust(identity=SIGNER, root=root)
    name = content.index(b"\\u2014 ") + len(b"\\u2014 ")
    unsigned = range(name, content.index(b" ", name))
    draw = random.Random(7)
    for _ in range(250):
        place = draw.randrange(len(content))
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        assert place in unsigned or _is_found(bytes(changed), trust), place


def _is_found(content: bytes, trust: Trust) -> bool:
    try:
        found = parse_signed(content)
    except EnvelopeError:
        return True
    return not found.is_signed or bool(texts_of(check_signer(found, trust), Outcome.DIFFERS))


def certificate_of_version_50(document: dict[str, Any]) -> None:
    certificate = document["verificationMaterial"]["certificate"]
    der = base64.b64decode(certificate["rawBytes"])
    of_50 = der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020131"), 1)
    certificate["rawBytes"] = base64.b64encode(of_50).decode()


def in_checkpoint(old: str, new: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        checkpoint = entry_of(document)["inclusionProof"]["checkpoint"]
        assert old in checkpoint["envelope"]
        head, _, last = checkpoint["envelope"].rpartition(old)
        checkpoint["envelope"] = head + new + last

    return edit


ODD: dict[str, Edit] = {
    "no signature": lambda document: document["dsseEnvelope"].update(signatures=[]),
    "an empty signature": lambda document: document["dsseEnvelope"]["signatures"][0].update(sig=""),
    "a time that no clock can show": lambda document: entry_of(document).update(integratedTime=str(1 << 62)),
    "a certificate of another version": certificate_of_version_50,
    "another name of the same form": lambda document: document.update(
        mediaType="application/vnd.dev.sigstore.bundle+json;version=0.3"
    ),
    "an older form": lambda document: document.update(
        mediaType="application/vnd.dev.sigstore.bundle+json;version=0.2",
        verificationMaterial={
            "x509CertificateChain": {"certificates": 2 * [document["verificationMaterial"]["certificate"]]},
            **{key: each for key, each in document["verificationMaterial"].items() if key != "certificate"},
        },
    ),
    "empty timestamps": lambda document: document["verificationMaterial"].update(timestampVerificationData={}),
    "no timestamps": lambda document: document["verificationMaterial"].pop("timestampVerificationData"),
    "the id of a key": lambda document: document["dsseEnvelope"]["signatures"][0].update(keyid="eve"),
    "a further signature of the checkpoint": in_checkpoint("\n", "\n\u2014 eve AAAAAAAA\n"),
    "a line below the checkpoint": in_checkpoint("\n", "\neve\n"),
    "letters before the checkpoint's signature": in_checkpoint("\u2014", "eve\u2014"),
    "letters in the checkpoint's signature": in_checkpoint("\n", "!!\n"),
}


@pytest.mark.parametrize("odd", ODD)
def test_bundle_that_evalrun_never_writes_is_found(signed: KeylessEnvelope, root: TrustRoot, odd: str) -> None:
    assert _is_found(edited(signed, ODD[odd]), Trust(identity=SIGNER, root=root))


def test_revocation_counts_if_the_same_identity_signed_it(
    instance: Instance, root: TrustRoot, signed: KeylessEnvelope, tmp_path: Path
) -> None:
    trust = Trust(identity=SIGNER, root=root)

    def found_by(line: str) -> list[str]:
        revoked = replace(trust, revocations=parse_revocations([line], "revoked.jsonl"))
        return [each.text for each in check_signer(signed, revoked) if each.outcome.is_problem]

    signer = KeylessSigner(root, instance.authority.token)
    line = to_line(revoke(signed, signer, "wrong tests", "2026-11-28T00:00:00+00:00"))
    assert found_by(line) == ["revoked by its signer at 2026-11-28T00:00:00+00:00: wrong tests"]

    eve = KeylessSigner(root, lambda: instance.authority.token("eve@example.org"))
    with pytest.raises(BadInputError, match="revoke it with that one"):
        revoke(signed, eve, "spite", "2026-11-28T00:00:00+00:00")
    statement = parse_revocations([line], "revoked.jsonl")[0].signed.statement()
    assert found_by(to_line(eve.sign(statement))) == []

    pretender = sign_at(Instance(Authority(instance.authority.now), Log(instance.log.now)), tmp_path, statement)
    (doubt,) = found_by(to_line(pretender))
    assert "whether by its signer is not known" in doubt


def test_revocation_that_cannot_count_is_not_published(
    instance: Instance, root: TrustRoot, signed: KeylessEnvelope, tmp_path: Path
) -> None:
    _, by_a_key = signed_run(tmp_path, [True])
    signer = KeylessSigner(root, instance.authority.token)
    elsewhere = KeylessSigner(root, lambda: instance.authority.token(issuer="https://elsewhere.example.org"))
    published = len(instance.log.leaves)
    with pytest.raises(BadInputError, match="revoke it with that one"):
        revoke(by_a_key.envelope, signer, "spite", "2026")
    with pytest.raises(BadInputError, match=f"elsewhere.example.org gave this identity, and one of {ISSUER} has to"):
        revoke(signed, elsewhere, "spite", "2026")
    with pytest.raises(BadInputError, match="revoke it with that one"):
        revoke(signed, new_key(tmp_path, "other.pem"), "spite", "2026")
    assert len(instance.log.leaves) == published


def test_damaged_revocation_of_an_identity_is_refused(
    instance: Instance, root: TrustRoot, signed: KeylessEnvelope
) -> None:
    line = to_line(revoke(signed, KeylessSigner(root, instance.authority.token), "wrong", "2026"))
    with pytest.raises(BadInputError, match=r"revoked\.jsonl:1: no signed revocation"):
        parse_revocations([line.replace('"sig":"', '"sig":"A')], "revoked.jsonl")


def test_run_is_signed_by_an_identity(instance: Instance, root: TrustRoot, tmp_path: Path) -> None:
    signer = KeylessSigner(root, instance.authority.token)
    bundle, written = signed_run(tmp_path, [True, False], key=signer)
    assert {each.outcome for each in check_bundle(bundle, tmp_path / "scratch")} == {Outcome.MATCHES}
    assert (tmp_path / "run" / "attestation.json").read_bytes() == written.envelope.to_bytes()
    content = bundle.read_bytes()
    place = content.index(b"results.jsonl.gz") + 600
    bundle.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert texts_of(check_bundle(bundle, tmp_path / "edited"), Outcome.DIFFERS)


def test_signer_is_shown_only_if_an_instance_vouches_for_it(
    instance: Instance, root: TrustRoot, tmp_path: Path
) -> None:
    signed_run(tmp_path, [True], key=KeylessSigner(root, instance.authority.token))
    place = str(tmp_path / "run")
    assert find_signer(place, Trust(root=root)) == f"{NAME} ({ISSUER})"
    assert find_signer(place) == ""


def test_attestation_of_another_run_is_found(instance: Instance, root: TrustRoot, tmp_path: Path) -> None:
    signer = KeylessSigner(root, instance.authority.token)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    signed_run(tmp_path / "first", [True, False], key=signer)
    signed_run(tmp_path / "second", [False, True], key=signer)
    attestation = Path("run") / "attestation.json"
    (tmp_path / "first" / attestation).write_bytes((tmp_path / "second" / attestation).read_bytes())
    run, findings = open_folder(tmp_path / "first" / "run")
    assert run is not None
    assert "results.jsonl was changed" in texts_of(findings, Outcome.DIFFERS)


def test_token_that_cannot_be_used_is_refused(instance: Instance, root: TrustRoot) -> None:
    signer = KeylessSigner(root, lambda: instance.authority.token(lifetime=-timedelta(minutes=10)))
    with pytest.raises(BadInputError, match="OpenID Connect token for the audience sigstore"):
        signer.sign(STATEMENT)
    with pytest.raises(BadInputError, match="OpenID Connect token for the audience sigstore"):
        KeylessSigner(root, lambda: "no token").sign(STATEMENT)


def test_token_of_another_provider_is_refused_by_the_authority(instance: Instance, root: TrustRoot) -> None:
    stranger = Authority(instance.authority.now)
    with pytest.raises(BadInputError, match="it did not sign: 401 Client Error"):
        KeylessSigner(root, stranger.token).sign(STATEMENT)


def test_instance_that_does_not_answer_is_named(instance: Instance, tmp_path: Path) -> None:
    gone = Instance(instance.authority, instance.log, "http://127.0.0.1:9")
    root = TrustRoot.read(gone.write_trust_config(tmp_path))
    with pytest.raises(BadInputError, match=r"trust\.json: it did not sign"):
        KeylessSigner(root, instance.authority.token).sign(STATEMENT)


def test_file_without_a_trust_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trust.json").write_text("{}")
    with pytest.raises(BadInputError, match="no ClientTrustConfig of Sigstore"):
        TrustRoot.read(tmp_path / "trust.json")
    with pytest.raises(BadInputError, match="cannot be read"):
        TrustRoot.read(tmp_path / "none.json")
