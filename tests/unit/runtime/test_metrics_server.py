"""Metrics are shown to whom the digests admit."""

import hashlib
import http.client

import pytest

from evalrun_runtime.metrics_server import start_metrics_server
from evalrun_runtime.settings import ServiceSettings, load_settings

TOKEN, OTHER = "scraper", "other"
DIGESTS = [hashlib.sha256(token.encode()).hexdigest() for token in (TOKEN, "next")]


def status_of(port: int, authorization: str | None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={} if authorization is None else {"Authorization": authorization})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("", 401),
        (f"Bearer {OTHER}", 401),
        (TOKEN, 401),
        (f"Bearer {DIGESTS[0]}", 401),
        (f"Bearer {TOKEN}", 200),
        ("Bearer next", 200),
    ],
)
def test_metrics_server_with_digests_answers_known_tokens_alone(authorization: str | None, status: int) -> None:
    port = start_metrics_server(0, "127.0.0.1", DIGESTS)
    assert status_of(port, authorization) == status


def test_metrics_server_without_digests_answers_without_a_token() -> None:
    assert status_of(start_metrics_server(0, "127.0.0.1", []), None) == 200


def test_settings_digests_are_read_with_commas() -> None:
    settings = load_settings(ServiceSettings, [f"--metrics-token-sha256={','.join(DIGESTS)}"], program="x")
    assert settings.metrics_token_sha256 == DIGESTS
