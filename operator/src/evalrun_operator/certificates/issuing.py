"""Creates certificate authorities and issues certificates with them.

A run's authority lives for a single call of `issue`. Its key is stored nowhere, so nobody can get another certificate
that the run's parts would accept. The authority of the chart's judge stays, because callers come and go.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve P-256: private keys are the numbers below it."""
VALID_FOR = timedelta(days=3650)
"""Longer than any run: a certificate that is not renewed must not expire during the run."""
CLOCK_SKEW = timedelta(hours=1)
"""A node whose clock is late by less than this accepts a new certificate at once."""


@dataclass(frozen=True)
class Usage:
    """Purpose of a certificate."""

    hosts: Sequence[str] = ()
    """Names or addresses that clients use; none for a part that only calls."""
    calls: bool = True
    """Whether a client may present the certificate."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, in PEM."""

    chain: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Issued:
    """The certificates that an authority issued together."""

    authority: str
    """The authority's own certificate, in PEM."""
    by_part: Mapping[str, Certificate]


class Authority:
    """Signs certificates. Pure: the same arguments return the same certificates.

    Args:
        name: name of the authority.
        seed: random, at least 256 bits; the key is derived from it, so whoever has the seed can sign too.
    """

    def __init__(self, name: str, seed: str) -> None:
        self._subject = _name(name)
        self._key = _key(seed, "authority")

    @property
    def fingerprint(self) -> str:
        """A digest of the authority's key: the same for all certificates of the authority itself."""
        return _key_id(self._key).hex()[:8]

    def certificate(self, since: datetime) -> str:
        """Return the authority's own certificate, in PEM.

        Callers that hold an earlier certificate of the authority accept its signatures, too.
        """
        own = _builder(self._subject, self._subject, self._key, since, VALID_FOR)
        own = own.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        own = own.add_extension(_key_usage(signs_certificates=True), critical=True)
        return _pem(own.sign(self._key, hashes.SHA256(), ecdsa_deterministic=True))

    def sign(
        self, part: str, usage: Usage, since: datetime, seed: str, valid_for: timedelta = VALID_FOR
    ) -> Certificate:
        """Return a certificate and its key, which is derived from a random seed.

        Args:
            part: the certificate's name.
            usage: purpose of the certificate.
            since: time of issue.
            seed: random, at least 256 bits; it must not be stored.
            valid_for: period of validity.
        """
        key = _key(seed, f"part {part}")
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if usage.hosts else []
        purposes += [ExtendedKeyUsageOID.CLIENT_AUTH] if usage.calls else []
        leaf = _builder(_name(part), self._subject, key, since, valid_for)
        # While one authority replaces another of the same name, clients tell the two apart by this identifier.
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        leaf = leaf.add_extension(by, critical=False)
        leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        leaf = leaf.add_extension(_key_usage(signs_certificates=False), critical=True)
        leaf = leaf.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if usage.hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in usage.hosts])
            leaf = leaf.add_extension(names, critical=False)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Certificate(_pem(leaf.sign(self._key, hashes.SHA256(), ecdsa_deterministic=True)), private.decode())


def issue(name: str, parts: Mapping[str, Usage], now: datetime, seed: str) -> Issued:
    """Return certificates of a new authority. Pure: the same arguments return the same certificates.

    Args:
        name: name of the authority.
        parts: purpose of the certificate of each part.
        now: time of issue.
        seed: random, at least 256 bits; all keys are derived from it, so it must not be stored.
    """
    authority = Authority(name, seed)
    leaves = {part: authority.sign(part, usage, now, seed) for part, usage in parts.items()}
    return Issued(authority.certificate(now), leaves)


def compute_remaining_validity(held: Certificate, authority: str, usage: Usage, now: datetime) -> timedelta | None:
    """Return how long a certificate remains valid, or None if it does not match its key, its authority or its usage.

    Args:
        held: the certificate and its key.
        authority: certificate of the expected authority, in PEM.
        usage: the expected purpose.
        now: the time.
    """
    try:
        leaf = x509.load_pem_x509_certificate(held.chain.encode())
        key = load_pem_private_key(held.key.encode(), None)
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value if usage.hosts else ()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return None
    fits = key.public_key() == leaf.public_key() and list(names) == [_general_name(host) for host in usage.hosts]
    return leaf.not_valid_after_utc - now if fits else None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, valid_for: timedelta
) -> x509.CertificateBuilder:
    # The certificates of one key need different serial numbers; X.509 allows at most 159 bits.
    number = hashlib.sha256(_key_id(key) + since.isoformat().encode()).digest()[:19]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(number) | 1)
        .not_valid_before(since - CLOCK_SKEW)
        .not_valid_after(since + valid_for)
    )


def _key(seed: str, name: str) -> ec.EllipticCurvePrivateKey:
    """Derive the key of a name from 512 bits of HMAC, so that all numbers below the order are equally likely."""
    drawn = int.from_bytes(hmac.digest(seed.encode(), f"evalrun certificate {name}".encode(), hashlib.sha512))
    return ec.derive_private_key(drawn % (ORDER - 1) + 1, ec.SECP256R1())


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
