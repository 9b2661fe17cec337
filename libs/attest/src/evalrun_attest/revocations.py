"""Revocations: a signer takes an attestation back. A file of revocations has one signed statement per line. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from evalrun_attest.envelope import Envelope, EnvelopeError, encode_envelope
from evalrun_attest.keys import SigningKey
from evalrun_attest.signatures import Identity, SignedStatement, Signer, parse_signed
from evalrun_attest.statement import STATEMENT_TYPE
from evalrun_runtime.exits import BadInputError

PREDICATE_TYPE: Final = "https://evalrun.dev/attestation/revocation/v1"


@dataclass(frozen=True, slots=True)
class Revocation:
    """An attestation that its signer took back."""

    payload_sha256: str
    """Digest of the attestation's payload."""
    signed: SignedStatement
    """The revocation itself; it counts only if the signer of the attestation signed it."""
    reason: str
    revoked_at: str


def revoke(attestation: SignedStatement, signer: Signer, reason: str, now: str) -> SignedStatement:
    """Return the signed revocation of an attestation.

    Args:
        attestation: the attestation to revoke.
        signer: the key or identity that signed it.
        reason: for readers.
        now: ISO 8601.

    Raises:
        BadInputError: another signer signed the attestation.
    """
    statement: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": "attestation.json", "digest": {"sha256": attestation.payload_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"reason": reason, "revokedAt": now},
    }
    signed_by = attestation.signer
    refused = BadInputError(f"{signed_by} signed this attestation: revoke it with that one")
    if isinstance(signer, SigningKey):
        if signer.public.id != signed_by:
            raise refused
        return Envelope.sign(statement, signer)
    # What an identity signs is published for good, so what is known beforehand is compared beforehand.
    if not isinstance(signed_by, Identity):
        raise refused
    revocation = signer.sign(statement, signed_by.issuer)
    if revocation.signer != signed_by:
        raise refused
    return revocation


def to_line(revocation: SignedStatement) -> str:
    """Return a revocation as a line of a file of revocations."""
    return json.dumps(json.loads(revocation.to_bytes()), separators=(",", ":")) + "\n"


def parse_revocations(lines: Iterable[str], where: str) -> list[Revocation]:
    """Parse a file of revocations.

    Raises:
        BadInputError: a line is no signed revocation: a damaged list must not pass for an empty list.
    """
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            envelope = parse_signed(encode_envelope(json.loads(line)))
            statement = envelope.statement()
            if not envelope.is_signed or statement.get("predicateType") != PREDICATE_TYPE:
                raise EnvelopeError("it is not signed, or revokes nothing")
            found.append(
                Revocation(
                    statement["subject"][0]["digest"]["sha256"],
                    envelope,
                    str(statement["predicate"]["reason"]),
                    str(statement["predicate"]["revokedAt"]),
                )
            )
        except (EnvelopeError, ValueError, LookupError, TypeError) as error:
            raise BadInputError(f"{where}:{number}: no signed revocation: {error}") from error
    return found


def find_revocations(revocations: Iterable[Revocation], attestation: SignedStatement) -> list[Revocation]:
    """Return the revocations of an attestation in the name of its own signer."""
    signer, digest = attestation.signer, attestation.payload_sha256
    return [each for each in revocations if (each.signed.signer, each.payload_sha256) == (signer, digest)]
