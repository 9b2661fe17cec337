"""Certificates of a run: an authority that lives for one call, and what it signs.

The authority's key is kept nowhere, so nobody can get another certificate that the run's parts would accept.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256: private keys are the numbers below it."""
VALID_FOR = timedelta(days=3650)
"""Longer than any run: what cannot be issued again must not expire under it."""
CLOCK_SKEW = timedelta(hours=1)
"""A node whose clock is late by less accepts a certificate at once."""


@dataclass(frozen=True)
class Usage:
    """Purpose of a certificate."""

    hosts: Sequence[str] = ()
    """Names or addresses that clients call it by; none for a part that only calls."""
    calls: bool = True
    """Whether it may be shown by a client."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, in PEM."""

    chain: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Issued:
    """Certificates of one authority."""

    authority: str
    """Its own certificate, in PEM."""
    by_part: Mapping[str, Certificate]


def issue(name: str, parts: Mapping[str, Usage], now: datetime, seed: str) -> Issued:
    """Return certificates of a new authority. Pure: the same arguments give the same certificates.

    Args:
        name: of the authority.
        parts: by part, what its certificate is for.
        now: when they are issued.
        seed: random, at least 256 bits; all keys are derived from it, so it must be kept nowhere.
    """
    key = _key(seed, "authority")
    subject = _name(name)
    own = _builder(subject, subject, key, now)
    own = own.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    own = own.add_extension(_key_usage(signs_certificates=True), critical=True)
    authority = own.sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    leaves = {
        part: _leaf(part, usage, authority, key, now, _key(seed, f"part {part}")) for part, usage in parts.items()
    }
    return Issued(_pem(authority), leaves)


def _leaf(
    part: str,
    usage: Usage,
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    now: datetime,
    key: ec.EllipticCurvePrivateKey,
) -> Certificate:
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if usage.hosts else []
    purposes += [ExtendedKeyUsageOID.CLIENT_AUTH] if usage.calls else []
    leaf = _builder(_name(part), authority.subject, key, now)
    # By it the authority is found among several of one name, while one replaces the other.
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    leaf = leaf.add_extension(by, critical=False)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_key_usage(signs_certificates=False), critical=True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if usage.hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in usage.hosts])
        leaf = leaf.add_extension(names, critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(_pem(leaf.sign(signer, hashes.SHA256(), ecdsa_deterministic=True)), private.decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(_digest(key)) | 1)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
    )


def _key(seed: str, name: str) -> ec.EllipticCurvePrivateKey:
    """Return the key of a name: 512 bits of HMAC, so that no number below the order is likelier than another."""
    drawn = int.from_bytes(hmac.digest(seed.encode(), f"evalrun certificate {name}".encode(), hashlib.sha512))
    return ec.derive_private_key(drawn % (ORDER - 1) + 1, ec.SECP256R1())


def _digest(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return 152 bits of the public key's digest: X.509 allows serial numbers of at most 159."""
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest[:19]


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
