"""The text of gcsfs that is read, held to the version that is locked."""

import importlib.metadata
import json

import gcsfs.retry
import pytest

from evalrun_data.gcsfs_texts import VERSION, Forbidden, read_forbidden


def test_gcsfs_texts_locked_version_is_the_one_read() -> None:
    assert importlib.metadata.version("gcsfs") == VERSION, (
        "read gcsfs.retry.validate_response again, then raise VERSION"
    )


@pytest.mark.parametrize(
    ("message", "forbidden"),
    [
        ("evals@x.test does not have storage.objects.create access", Forbidden.RIGHTS),
        ("The project exceeded its quota for total storage.", Forbidden.QUOTA),
        ("The billing account is disabled in state absent", Forbidden.BILLING),
    ],
)
def test_read_forbidden_error_of_gcsfs_returns_its_meaning(message: str, forbidden: Forbidden) -> None:
    content = json.dumps({"error": {"code": 403, "message": message}}).encode()
    with pytest.raises(OSError, match="Forbidden") as raised:
        gcsfs.retry.validate_response(403, content, "https://storage.googleapis.com/upload/storage/v1/b/results/o")
    assert read_forbidden(raised.value) is forbidden


@pytest.mark.parametrize("error", [OSError("quota exceeded"), ValueError("Forbidden: https://x\nquota")])
def test_read_forbidden_other_error_returns_none(error: Exception) -> None:
    assert read_forbidden(error) is None
