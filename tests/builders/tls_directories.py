"""Directories of certificates for tests, exchanged as the kubelet does: all files at once, by a link."""

import asyncio
import os
import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evalrun_operator.certificates.issuing import Issued, Usage, issue

PARTS = {
    "server": Usage(["127.0.0.1", "sandbox.ns.svc"], calls=False),
    "gateway": Usage(["127.0.0.1"]),
    "client": Usage(),
}


def authority() -> Issued:
    """Return the certificates of a new authority: of a server, a gateway that also calls, and a client."""
    return issue("evalrun test", PARTS, datetime.now(UTC), secrets.token_hex(32))


@dataclass
class TlsDirectory:
    """A directory as a Secret's volume."""

    path: Path
    _written: int = 0

    def write(self, part: str, issued: Issued, *trusted: Issued) -> Path:
        """Exchange all files: a part's certificate, and the authorities (default: its own)."""
        self._written += 1
        new = self.path.with_name(f"{self.path.name}.{self._written}")
        new.mkdir(parents=True)
        certificate = issued.by_part[part]
        (new / "tls.crt").write_text(certificate.chain)
        (new / "tls.key").write_text(certificate.key)
        (new / "ca.crt").write_text("".join(one.authority for one in (trusted or (issued,))))
        link = self.path.with_name(f"{self.path.name}.link")
        link.symlink_to(new)
        os.replace(link, self.path)  # noqa: PTH105 - the call that is whole or nothing
        return self.path


async def shown(address: str) -> bytes | None:
    host, _, port = address.partition("://")[2].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate
    finally:
        writer.close()
