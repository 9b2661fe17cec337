"""A private instance of Sigstore on loopback: a provider of identities, an authority for certificates, and a log.

It speaks the HTTP of Fulcio and of Rekor v1, so that the published package signs with it and verifies against its trust
root. It checks what the real ones check: the token's signature, that the request is signed by the key that gets the
certificate, and that the logged envelope is signed by that certificate.
"""

import base64
import hashlib
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from evalrun_attest.merkle import MerkleTree, hash_leaf, hash_pair

ISSUER: Final = "https://issuer.example.org"
NAME: Final = "https://example.org/lab/evals/.github/workflows/eval.yml@refs/heads/main"
LIFETIME: Final = timedelta(minutes=10)
_SCTS: Final = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER_V1: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")

Key = ec.EllipticCurvePrivateKey


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _der(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _sign(key: Key, message: bytes) -> bytes:
    return key.sign(message, ec.ECDSA(SHA256()))


@dataclass
class Authority:
    """Issues certificates of ten minutes, each with the promise of a log of certificates."""

    now: Callable[[], datetime]
    key: Key = field(default_factory=_new_key)
    log_key: Key = field(default_factory=_new_key)
    provider_key: Key = field(default_factory=_new_key)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        usage = {each: each in ("key_cert_sign", "crl_sign") for each in _USAGES}
        self.root = (
            x509.CertificateBuilder(name, name, self.key.public_key(), x509.random_serial_number())
            .not_valid_before(self.now() - timedelta(days=1))
            .not_valid_after(self.now() + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, SHA256())
        )

    def token(self, name: str = NAME, issuer: str = ISSUER, *, lifetime: timedelta = LIFETIME) -> str:
        """Return a token as the provider of identities gives it."""
        now = self.now()
        claims = {"iss": issuer, "sub": name, "aud": "sigstore", "iat": now, "exp": now + lifetime}
        pem = self.provider_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return jwt.encode(claims, pem, algorithm="ES256")

    def answer(self, token: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request for a certificate. Raises jwt.InvalidTokenError."""
        claims = jwt.decode(token, self.provider_key.public_key(), algorithms=["ES256"], audience="sigstore")
        csr = x509.load_pem_x509_csr(base64.b64decode(request["certificateSigningRequest"]))
        public = csr.public_key()
        if not csr.is_signature_valid or not isinstance(public, ec.EllipticCurvePublicKey):
            raise ValueError("the request is not signed by its key")
        certificate = self.issue(public, claims["sub"], claims["iss"])
        chain = [each.public_bytes(Encoding.PEM).decode() for each in (certificate, self.root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def issue(self, public: ec.EllipticCurvePublicKey, name: str, issuer: str) -> x509.Certificate:
        """Return the certificate of an identity."""
        subject: x509.GeneralName = x509.UniformResourceIdentifier(name) if "://" in name else x509.RFC822Name(name)
        usage = {each: each == "digital_signature" for each in _USAGES}
        builder = (
            x509.CertificateBuilder(self.root.subject, x509.Name([]), public, x509.random_serial_number())
            .not_valid_before(self.now())
            .not_valid_after(self.now() + LIFETIME)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([subject]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_V1, issuer.encode()), critical=False)
        )
        promise = self._promise(builder.sign(self.key, SHA256()).tbs_certificate_bytes)
        return builder.add_extension(x509.UnrecognizedExtension(_SCTS, promise), critical=False).sign(
            self.key, SHA256()
        )

    def _promise(self, unsigned: bytes) -> bytes:
        """Return the extension with the signed timestamp of the log of certificates (RFC 6962, section 3.2)."""
        moment = struct.pack("!Q", int(self.now().timestamp() * 1000))
        length = struct.pack("!I", len(unsigned))[1:]
        issuer = hashlib.sha256(_der(self.key)).digest()
        signature = _sign(self.log_key, b"\0\0" + moment + b"\0\1" + issuer + length + unsigned + b"\0\0")
        entry = b"\0" + hashlib.sha256(_der(self.log_key)).digest() + moment + b"\0\0" + b"\4\3"
        entry += struct.pack("!H", len(signature)) + signature
        listed = struct.pack("!H", len(entry)) + entry
        listed = struct.pack("!H", len(listed)) + listed
        return b"\4" + bytes([len(listed)]) + listed  # an OCTET STRING of less than 128 bytes


_USAGES: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@dataclass
class Log:
    """A log that holds some entries already, so that a proof has parts."""

    now: Callable[[], datetime]
    key: Key = field(default_factory=_new_key)
    leaves: list[bytes] = field(default_factory=lambda: [b"one", b"two", b"three", b"four", b"five"])

    @property
    def id(self) -> bytes:
        """Digest of its key."""
        return hashlib.sha256(_der(self.key)).digest()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Append the envelope of a request, and return the entry."""
        content = request["spec"]["proposedContent"]
        return self.append(json.loads(content["envelope"]), base64.b64decode(content["verifiers"][0]))

    def append(self, envelope: dict[str, Any], pem: bytes) -> dict[str, Any]:
        """Append an envelope that a certificate has signed."""
        payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
        message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
        public = x509.load_pem_x509_certificate(pem).public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise TypeError("a key of another algorithm")
        signature = envelope["signatures"][0]["sig"]
        public.verify(base64.b64decode(signature), message, ec.ECDSA(SHA256()))
        body = _canonical(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(_canonical(envelope)).hexdigest()},
                    "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
                    "signatures": [{"signature": signature, "verifier": _b64(pem)}],
                },
            }
        )
        self.leaves.append(body)
        return self._entry(len(self.leaves) - 1)

    def _entry(self, index: int) -> dict[str, Any]:
        body = _b64(self.leaves[index])
        promised = {
            "body": body,
            "integratedTime": int(self.now().timestamp()),
            "logID": self.id.hex(),
            "logIndex": index,
        }
        tree = MerkleTree()
        for leaf in self.leaves:
            tree.add(leaf)
        note = f"log.example.org - 1\n{tree.count}\n{_b64(bytes.fromhex(tree.root()))}\n"
        signature = _b64(self.id[:4] + _sign(self.key, note.encode()))
        proof = {
            "logIndex": index,
            "treeSize": tree.count,
            "rootHash": tree.root(),
            "hashes": [each.hex() for each in _audit_path(index, [hash_leaf(leaf) for leaf in self.leaves])],
            "checkpoint": f"{note}\n\u2014 log.example.org {signature}\n",
        }
        verification = {
            "signedEntryTimestamp": _b64(_sign(self.key, _canonical(promised))),
            "inclusionProof": proof,
        }
        return {hashlib.sha256(body.encode()).hexdigest(): {**promised, "verification": verification}}


def _audit_path(index: int, hashes: list[bytes]) -> list[bytes]:
    """Return the proof that a leaf is in a tree (RFC 6962, section 2.1.1), from the leaf up."""
    if len(hashes) == 1:
        return []
    split = 1 << (len(hashes) - 1).bit_length() - 1
    if index < split:
        return [*_audit_path(index, hashes[:split]), _root(hashes[split:])]
    return [*_audit_path(index - split, hashes[split:]), _root(hashes[:split])]


def _root(hashes: list[bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    return hash_pair(_root(hashes[:split]), _root(hashes[split:]))


@dataclass
class Instance:
    """An authority and a log, and the address where they are served."""

    authority: Authority
    log: Log
    url: str = ""

    @classmethod
    def create(cls, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> "Instance":
        """Return an instance with new keys."""
        return cls(Authority(now), Log(now))

    def trust_config(self) -> str:
        """Return what a client has to know of it: whom to ask, and whom to believe."""
        valid = {"start": "2020-01-01T00:00:00Z"}

        def service(path: str = "") -> list[dict[str, Any]]:
            return [{"url": self.url + path, "majorApiVersion": 1, "validFor": valid, "operator": "tests"}]

        def log(key: Key) -> list[dict[str, Any]]:
            public = {"rawBytes": _b64(_der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid}
            key_id = {"keyId": _b64(hashlib.sha256(_der(key)).digest())}
            return [{"baseUrl": self.url, "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": key_id}]

        root = {"certificates": [{"rawBytes": _b64(self.authority.root.public_bytes(Encoding.DER))}]}
        authority = {
            "subject": {"organization": "tests", "commonName": "tests"},
            "uri": self.url,
            "certChain": root,
            "validFor": valid,
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
                "trustedRoot": {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": log(self.log.key),
                    "ctlogs": log(self.authority.log_key),
                    "certificateAuthorities": [authority],
                    "timestampAuthorities": [],
                },
                "signingConfig": {
                    "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                    "caUrls": service(),
                    "oidcUrls": service("/auth"),
                    "rekorTlogUrls": service(),
                    "rekorTlogConfig": {"selector": "ANY"},
                    "tsaUrls": [],
                    "tsaConfig": {"selector": "ANY"},
                },
            }
        )

    def write_trust_config(self, folder: Path, name: str = "trust.json") -> Path:
        """Write the trust config into a file."""
        path = folder / name
        path.write_text(self.trust_config())
        return path


@contextmanager
def served(instance: Instance) -> Iterator[Instance]:
    """Serve an instance on loopback, and where a job of GitHub Actions gets its token (`/token`)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != "bearer of-the-job":
                self._answer(403, {})
            else:
                self._answer(200, {"value": instance.authority.token()})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                if self.path == "/api/v2/signingCert":
                    token = self.headers["Authorization"].removeprefix("Bearer ")
                    self._answer(201, instance.authority.answer(token, request))
                elif self.path == "/api/v1/log/entries":
                    self._answer(201, instance.log.answer(request))
                else:
                    self._answer(404, {})
            except jwt.InvalidTokenError as error:
                self._answer(401, {"code": 16, "message": str(error)})

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    instance.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield instance
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
