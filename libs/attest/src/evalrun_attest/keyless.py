"""Signs statements by an identity instead of a key, and verifies such statements, with Sigstore.

A service that asks the identity's provider issues a certificate of ten minutes, and a public log holds the signature
with its time. The formats belong to the package `sigstore`, an optional extra, so this module is imported only on use.
`TrustRoot.fetch` and `KeylessSigner` use the network, the rest does not.
"""

import base64
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

# The clients raise these, and the package exports them nowhere else.
from sigstore._internal.fulcio import ExpiredCertificate
from sigstore._internal.fulcio.client import FulcioClientError
from sigstore._internal.rekor import RekorClientError
from sigstore.dsse import Statement
from sigstore.errors import CertValidationError, Error
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.oidc import ExpiredIdentity, IdentityToken
from sigstore.sign import SigningContext
from sigstore.verify import Verifier, policy

from evalrun_attest.envelope import (
    PAYLOAD_TYPE,
    EnvelopeError,
    encode_envelope,
    encode_for_signing,
    encode_statement,
    parse_payload,
)
from evalrun_attest.signatures import Identity
from evalrun_runtime.exits import BadInputError

PUBLIC_INSTANCE: Final = "Sigstore's public instance"
_ISSUER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_BROKEN: Final = (
    Error,
    ValueError,
    OverflowError,
    RecursionError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Errors that the package and the certificate's parser raise for content that nobody honest wrote."""


class NotVouchedError(Exception):
    """The authorities and logs of a trust root do not vouch for a signature; the message says why."""


@dataclass(frozen=True)
class KeylessEnvelope:
    """A bundle of Sigstore around an in-toto statement, in the spelling of our envelopes."""

    bundle: Bundle
    payload: bytes
    signer: Identity
    """The identity that the certificate names. Who issued that certificate is for a `TrustRoot` to say."""
    signature: bytes

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse what `to_bytes` wrote.

        Raises:
            EnvelopeError: the content differs, however slightly, from every output of `to_bytes`.
        """
        try:
            document = json.loads(content)
            bundle = Bundle.from_json(content)
            payload = base64.b64decode(document["dsseEnvelope"]["payload"], validate=True)
            found = cls(bundle, payload, _identity_in(bundle.signing_certificate), bundle.signature)
            same = found.to_bytes() == content and _is_as_written(document)
        except (*_BROKEN, LookupError, TypeError) as error:
            raise EnvelopeError("it is no bundle of Sigstore around a statement") from error
        if not same:
            raise EnvelopeError("it differs from every bundle that evalrun writes: something was changed or added")
        return found

    def to_bytes(self) -> bytes:
        """Return the bundle as its file holds it."""
        return encode_envelope(json.loads(self.bundle.to_json()))

    @property
    def is_signed(self) -> bool:
        """Whether the signature is that of the certificate's key."""
        try:
            key = self.bundle.signing_certificate.public_key()
            if not isinstance(key, ec.EllipticCurvePublicKey):
                return False
            key.verify(self.signature, encode_for_signing(self.payload), ec.ECDSA(SHA256()))
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            return False
        return True

    @property
    def payload_sha256(self) -> str:
        """Digest of the statement, by which a revocation names it."""
        return hashlib.sha256(self.payload).hexdigest()

    def statement(self) -> dict[str, Any]:
        """Return the statement. Raises EnvelopeError."""
        return parse_payload(self.payload)


def _is_as_written(document: dict[str, Any]) -> bool:
    """Return whether a bundle has no part that the package accepts, looks past, and never writes.

    Raises LookupError, TypeError or ValueError if a part is missing.
    """
    material = document["verificationMaterial"]
    checkpoint = material["tlogEntries"][0]["inclusionProof"]["checkpoint"]["envelope"]
    mark, _, signature = checkpoint.partition("\n\n")[2].split(" ")
    return (
        document["mediaType"] == Bundle.BundleType.BUNDLE_0_3
        and "keyid" not in document["dsseEnvelope"]["signatures"][0]
        and "rfc3161Timestamps" in material["timestampVerificationData"]
        and (mark, signature) == ("\u2014", base64.b64encode(base64.b64decode(signature)).decode() + "\n")
    )


def _identity_in(certificate: x509.Certificate) -> Identity:
    """Return the one identity of a certificate. Raises one of `_BROKEN`."""
    extensions = certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    issuer = extensions.get_extension_for_oid(_ISSUER).value
    (name,) = [
        *names.get_values_for_type(x509.RFC822Name),
        *names.get_values_for_type(x509.UniformResourceIdentifier),
    ]
    return Identity(name, issuer.public_bytes().decode())


@dataclass(frozen=True)
class TrustRoot:
    """The authorities and logs of an instance of Sigstore."""

    config: ClientTrustConfig
    where: str
    """Name of the source, for messages."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of a private instance. Raises BadInputError."""
        try:
            config = ClientTrustConfig.from_json(path.read_text(encoding="utf-8"))
            found = cls(config, str(path))
            Verifier(trusted_root=config.trusted_root)
        except OSError as error:
            raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
        except _BROKEN as error:
            raise BadInputError(
                f"{path}: no ClientTrustConfig of Sigstore, as its CLI's --trust-config reads"
            ) from error
        return found

    @classmethod
    def read_stored(cls) -> Self:
        """Return the root of the public instance that the package came with, or fetched last. Raises BadInputError."""
        # The package warns that it fetches nothing. That is wanted here, and said among the findings.
        logging.getLogger("sigstore._internal.tuf").setLevel(logging.ERROR)
        return cls._public(is_offline=True)

    @classmethod
    def fetch(cls) -> Self:
        """Return the current root of the public instance. Raises BadInputError without a network."""
        return cls._public(is_offline=False)

    @classmethod
    def _public(cls, *, is_offline: bool) -> Self:
        try:
            return cls(ClientTrustConfig.production(offline=is_offline), PUBLIC_INSTANCE)
        except (Error, OSError) as error:
            remedy = (
                "set HOME (or XDG_DATA_HOME and XDG_CACHE_HOME) to a directory that may be written"
                if is_offline
                else "name that of a private instance (--trust-config FILE), or sign with a key (--key FILE)"
            )
            raise BadInputError(f"the trust root of {PUBLIC_INSTANCE} cannot be had: {error}: {remedy}") from error

    def check(self, envelope: KeylessEnvelope) -> None:
        """Check that an identity signed a statement while its certificate was valid, and that a log holds it.

        Raises:
            NotVouchedError: this instance does not say so.
        """
        said = envelope.signer
        try:
            verifier = Verifier(trusted_root=self.config.trusted_root)
            kind, payload = verifier.verify_dsse(
                envelope.bundle, policy.Identity(identity=said.name, issuer=said.issuer)
            )
        except CertValidationError as error:
            raise NotVouchedError(
                f"{self.where} vouches for no such certificate at that time (a private instance needs --trust-config)"
            ) from error
        # An OSError means a time that no clock can show.
        except (*_BROKEN, OSError) as error:
            raise NotVouchedError(f"{self.where} does not vouch for it: {error}") from error
        if (kind, payload) != (PAYLOAD_TYPE, envelope.payload):
            raise NotVouchedError("another payload than the statement was signed")


@dataclass(frozen=True)
class KeylessSigner:
    """Signs by the identity of a token, which is asked for when it is needed: it lives for some minutes."""

    root: TrustRoot
    get_token: Callable[[], str]
    """Gets an OpenID Connect token for the audience `sigstore`. Raises BadInputError."""

    def sign(self, statement: dict[str, Any], issuer: str | None = None) -> KeylessEnvelope:
        """Return the signed statement, which a public log then names.

        Args:
            statement: to sign.
            issuer: required issuer of the signing identity; None allows any issuer.

        Raises:
            BadInputError: there is no such identity, or no service has answered.
        """
        token = self.read_token()
        if issuer not in (None, token.federated_issuer):
            raise BadInputError(
                f"{token.federated_issuer} gave this identity, and one of {issuer} has to sign: nothing was signed"
            )
        try:
            context = SigningContext.from_trust_config(self.root.config)
            with context.signer(token) as signer:
                bundle = signer.sign_dsse(Statement(encode_statement(statement)))
            envelope = KeylessEnvelope.parse(encode_envelope(json.loads(bundle.to_json())))
            self.root.check(envelope)
        except (ExpiredIdentity, ExpiredCertificate) as error:
            raise BadInputError("the identity token expired before the signature was made: get another one") from error
        except (OSError, FulcioClientError, RekorClientError, Error, ValueError, LookupError) as error:
            raise BadInputError(f"{self.root.where}: it did not sign: {str(error) or error.__cause__}") from error
        except (EnvelopeError, NotVouchedError) as error:
            raise BadInputError(f"{self.root.where}: its answer cannot be verified: {error}") from error
        return envelope

    def read_token(self) -> IdentityToken:
        """Return the token, so that a missing token is reported before any work is done. Raises BadInputError."""
        try:
            return IdentityToken(self.get_token().strip())
        except Error as error:
            raise BadInputError(
                f"the identity token cannot be used: {error}: it must be an OpenID Connect token for the audience "
                "sigstore that is still valid"
            ) from error
