"""Ed25519 keys in PEM files, as `openssl genpkey -algorithm ed25519` writes them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from evalrun_runtime.exits import BadInputError

HOW_TO_MAKE_ONE = "openssl genpkey -algorithm ed25519 -out key.pem"
HOW_TO_PUBLISH_ONE = "openssl pkey -in key.pem -pubout -out key.pub"


@dataclass(frozen=True)
class PublicKey:
    """A key that verifies signatures."""

    pem: str
    """The key in its one usual spelling, whatever it was read from."""
    _key: Ed25519PublicKey

    @classmethod
    def parse(cls, pem: str, where: str) -> Self:
        """Parse a PEM public key.

        Raises:
            BadInputError: the text is no key, or a key of another algorithm; the message names `where`.
        """
        try:
            key = load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadInputError(f"{where}: no PEM public key: {HOW_TO_PUBLISH_ONE}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise BadInputError(f"{where}: a key of another algorithm than Ed25519: {HOW_TO_MAKE_ONE}")
        return cls(_pem(key), key)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a PEM file. Raises BadInputError."""
        return cls.parse(_text(path), str(path))

    @property
    def id(self) -> str:
        """SHA-256 of the key's SubjectPublicKeyInfo, in hexadecimal."""
        return hashlib.sha256(self._key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the key's owner signed the message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A key that signs."""

    _key: Ed25519PrivateKey

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a PEM file without a passphrase. Raises BadInputError."""
        return cls.parse(_text(path), str(path))

    @classmethod
    def parse(cls, pem: str, where: str) -> Self:
        """Parse a PEM key without a passphrase.

        Raises:
            BadInputError: the text is no key, or a key of another algorithm; the message names `where` and never quotes
                the key.
        """
        try:
            key = load_pem_private_key(pem.encode(), password=None)
        # The library raises TypeError for a passphrase.
        except TypeError as error:
            raise BadInputError(f"{where}: the key has a passphrase: write one without: {HOW_TO_MAKE_ONE}") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadInputError(f"{where}: no PEM private key: {HOW_TO_MAKE_ONE}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadInputError(f"{where}: a key of another algorithm than Ed25519: {HOW_TO_MAKE_ONE}")
        return cls(key)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message: 64 bytes."""
        return self._key.sign(message)

    @property
    def public(self) -> PublicKey:
        """The key that verifies its signatures."""
        key = self._key.public_key()
        return PublicKey(_pem(key), key)


def _pem(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: the key cannot be read: {error}") from error
