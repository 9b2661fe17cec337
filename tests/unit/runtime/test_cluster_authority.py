"""The authority of a cluster needs no extensions that Python 3.13 asks for by default; another authority is refused."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from evalrun_runtime.connections.cluster_authority import accept_cluster_authority


def strict_context(directory: Path) -> ssl.SSLContext:
    """Return the context that Python 3.13 makes by default, on each Python."""
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shake_hands(client_context: ssl.SSLContext, directory: Path, server_name: str = "127.0.0.1") -> None:
    """Let a client verify the certificate of a directory. Raises ssl.SSLCertVerificationError."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=server_name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    client.do_handshake()


def write_certificates(directory: Path) -> Path:
    """Write a server's certificate, its key and its authority, which has nothing but basic constraints."""
    directory.mkdir()
    now, name = datetime.now(UTC), x509.Name.from_rfc4514_string("CN=cluster")
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def sign(subject: x509.Name, public: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        unsigned = x509.CertificateBuilder(name, subject, public, x509.random_serial_number())
        unsigned = unsigned.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
        signed = unsigned.add_extension(extension, critical=True).sign(authority_key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    alone = x509.BasicConstraints(ca=True, path_length=None)
    server = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    (directory / "ca.crt").write_bytes(sign(name, authority_key.public_key(), alone))
    (directory / "tls.crt").write_bytes(sign(x509.Name.from_rfc4514_string("CN=server"), key.public_key(), server))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / "tls.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_certificates(tmp_path / "tls")


def test_cluster_authority_without_key_usage_is_accepted(directory: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(strict_context(directory), directory)
    shake_hands(accept_cluster_authority(strict_context(directory)), directory)


def test_cluster_authority_of_another_cluster_is_refused(directory: Path, tmp_path: Path) -> None:
    other = write_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(accept_cluster_authority(strict_context(other)), directory)


def test_cluster_authority_with_another_servers_name_is_refused(directory: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(accept_cluster_authority(strict_context(directory)), directory, "kubernetes.default.svc")
