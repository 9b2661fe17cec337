"""DSSE envelopes (Dead Simple Signing Envelope, protocol version 1) around in-toto statements. Pure.

One form is accepted: the bytes that `Envelope.to_bytes` writes. So there is no second spelling of the same envelope,
and a changed byte never goes unseen.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, Self

from evalrun_attest.keys import PublicKey, SigningKey
from evalrun_runtime.exits import BadInputError

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


class EnvelopeError(Exception):
    """The text is no envelope of this kind; the message says why."""


def encode_for_signing(payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding of a payload, over which the signature is computed."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def encode_statement(statement: dict[str, Any]) -> bytes:
    """Return the bytes of a statement: sorted keys, no spaces, no NaN."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def encode_envelope(document: dict[str, Any]) -> bytes:
    """Return the bytes of an envelope's file."""
    return (json.dumps(document, indent=1) + "\n").encode()


def parse_payload(payload: bytes) -> dict[str, Any]:
    """Return the statement in a payload. Raises EnvelopeError."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise EnvelopeError("its payload is not JSON") from error
    if not isinstance(found, dict):
        raise EnvelopeError("its payload is no in-toto statement")
    return found


@dataclass(frozen=True)
class Envelope:
    """A payload with its signature and the key that claims to have made it."""

    payload: bytes
    signature: bytes
    key: str
    """PEM of the public key. It says who claims to have signed; whom to trust is the reader's to say."""

    @classmethod
    def sign(cls, statement: dict[str, Any], key: SigningKey) -> Self:
        """Return a signed statement."""
        payload = encode_statement(statement)
        return cls(payload, key.sign(encode_for_signing(payload)), key.public.pem)

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse what `to_bytes` wrote.

        Raises:
            EnvelopeError: the content differs, however slightly, from every output of `to_bytes`.
        """
        try:
            document = json.loads(content)
            signatures = document["signatures"]
            found = cls(
                base64.b64decode(document["payload"], validate=True),
                base64.b64decode(signatures[0]["sig"], validate=True),
                signatures[0]["publicKey"],
            )
            same = isinstance(found.key, str) and found.to_bytes() == content
        except (ValueError, TypeError, LookupError, RecursionError, binascii.Error, BadInputError) as error:
            raise EnvelopeError("it is no DSSE envelope of evalrun") from error
        if not same:
            raise EnvelopeError("it differs from every envelope that evalrun writes: something was changed or added")
        return found

    def to_bytes(self) -> bytes:
        """Return the envelope as its file holds it."""
        key = PublicKey.parse(self.key, "the envelope's publicKey")
        signature = {
            "keyid": key.id,
            "sig": base64.b64encode(self.signature).decode(),
            # The key is stored in its one usual spelling, since PEM has many spellings of a key.
            "publicKey": key.pem,
        }
        document = {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [signature],
        }
        return encode_envelope(document)

    @property
    def public_key(self) -> PublicKey:
        """The key that it names. Raises BadInputError."""
        return PublicKey.parse(self.key, "the envelope's publicKey")

    @property
    def signer(self) -> str:
        """Id of the key that it names. Raises BadInputError."""
        return self.public_key.id

    @property
    def is_signed(self) -> bool:
        """Whether the signature is that of the key that it names."""
        return self.public_key.verifies(self.signature, encode_for_signing(self.payload))

    @property
    def payload_sha256(self) -> str:
        """Digest of the statement, by which a revocation names it."""
        return hashlib.sha256(self.payload).hexdigest()

    def statement(self) -> dict[str, Any]:
        """Return the statement. Raises EnvelopeError."""
        return parse_payload(self.payload)
