"""Revocations: a signer takes an attestation back. A file of them has one signed statement per line. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from evalrun_attest.envelope import Envelope, EnvelopeError
from evalrun_attest.keys import SigningKey
from evalrun_attest.statement import STATEMENT_TYPE
from evalrun_runtime.exits import BadInputError

PREDICATE_TYPE: Final = "https://evalrun.dev/attestation/revocation/v1"


@dataclass(frozen=True, slots=True)
class Revocation:
    """An attestation that its signer took back."""

    payload_sha256: str
    """Of the attestation."""
    key_id: str
    """Of the signer of the revocation; only that of the attestation counts."""
    reason: str
    revoked_at: str


def revoke(attestation: Envelope, key: SigningKey, reason: str, now: str) -> Envelope:
    """Return the signed revocation of an attestation.

    Args:
        attestation: the one taken back.
        key: the key that signed it.
        reason: for readers.
        now: ISO 8601.

    Raises:
        BadInputError: another key signed the attestation.
    """
    if key.public.id != attestation.public_key.id:
        raise BadInputError("--key: another key signed this attestation: revoke it with that one")
    statement: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": "attestation.json", "digest": {"sha256": attestation.payload_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"reason": reason, "revokedAt": now},
    }
    return Envelope.sign(statement, key)


def to_line(revocation: Envelope) -> str:
    """Return a revocation as a line of a file of revocations."""
    return json.dumps(json.loads(revocation.to_bytes()), separators=(",", ":")) + "\n"


def parse_revocations(lines: Iterable[str], where: str) -> list[Revocation]:
    """Parse a file of revocations.

    Raises:
        BadInputError: a line is no signed revocation: a damaged list must not pass for an empty one.
    """
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            envelope = Envelope.parse((json.dumps(json.loads(line), indent=1) + "\n").encode())
            statement = envelope.statement()
            if not envelope.is_signed or statement.get("predicateType") != PREDICATE_TYPE:
                raise EnvelopeError("it is not signed, or revokes nothing")
            found.append(
                Revocation(
                    statement["subject"][0]["digest"]["sha256"],
                    envelope.public_key.id,
                    str(statement["predicate"]["reason"]),
                    str(statement["predicate"]["revokedAt"]),
                )
            )
        except (EnvelopeError, ValueError, LookupError, TypeError) as error:
            raise BadInputError(f"{where}:{number}: no signed revocation: {error}") from error
    return found


def find_revocation(revocations: Iterable[Revocation], attestation: Envelope) -> Revocation | None:
    """Return the revocation of an attestation by its own signer, or None."""
    key_id, digest = attestation.public_key.id, attestation.payload_sha256
    return next((each for each in revocations if (each.key_id, each.payload_sha256) == (key_id, digest)), None)
