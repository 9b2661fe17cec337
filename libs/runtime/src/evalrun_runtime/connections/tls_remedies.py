"""Remedies of TLS connections that failed, by the words of gRPC and OpenSSL, which name causes alone. Pure."""

from typing import Final

UNKNOWN_CALLER: Final = (
    "a server with TLS closes so where the caller's certificate is missing, has expired, lacks the usage 'client "
    "auth', or is of no authority in the server's ca.crt"
)
REMEDIES: Final = (
    ("certificate has expired", "renew the server's certificate, or its authority's"),
    ("certificate is not yet valid", "the server's certificate begins later: compare the nodes' clocks"),
    ("ertificate purpose", "the server's certificate needs the usage 'server auth'"),
    ("Hostname Verification Check failed", "the server's certificate must name the host that it is called by"),
    ("certificate is not valid for", "the server's certificate must name the host that it is called by"),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is of no authority in the caller's ca.crt"),
    ("WRONG_VERSION_NUMBER", "the server speaks plain text: give both sides certificates, or neither"),
    ("Socket closed", UNKNOWN_CALLER),
    ("the connection closed before", UNKNOWN_CALLER),
    # aiohttp raises this error where the reset comes before the alert is read.
    ("[Errno 104]", UNKNOWN_CALLER),
)
"""Phrases and what they ask for; the first that is found counts. A client is not told why it is refused: by then, its
side of the handshake is over (TLS 1.3)."""


def find_remedy(cause: str) -> str:
    """Return what to do about a failed call if TLS is the cause; empty for other causes."""
    return next((remedy for phrase, remedy in REMEDIES if phrase in cause), "")


def add_remedy(cause: str) -> str:
    """Return a failed call's cause and, for errors of TLS, a remedy."""
    remedy = find_remedy(cause)
    return f"{cause} ({remedy})" if remedy else cause
