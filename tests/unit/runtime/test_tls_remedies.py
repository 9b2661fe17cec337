"""What a user reads of a TLS connection that failed; the libraries' own words are asked for in tests/integration."""

import pytest

from evalrun_runtime.connections.tls_remedies import add_remedy


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)", "renew"),
        ("SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK", "caller's ca.crt"),
        ("last error: UNAVAILABLE: ipv4:10.0.0.1:50051: Socket closed", "in the server's ca.crt"),
        ("ClientOSError: [Errno 104] Connection reset by peer", "in the server's ca.crt"),
    ],
)
def test_tls_error_is_followed_by_its_remedy(cause: str, remedy: str) -> None:
    assert add_remedy(cause).startswith(f"{cause} (")
    assert remedy in add_remedy(cause)


@pytest.mark.parametrize("cause", ["", "Deadline Exceeded", "connect: Connection refused (111)"])
def test_other_errors_get_no_tls_remedy(cause: str) -> None:
    assert add_remedy(cause) == cause
