"""Digests of records: equal where the records are, whatever file they came from. Pure."""

import hashlib
import json
from collections.abc import Iterable


def digest_records(records: Iterable[object]) -> str:
    """Return the hex SHA-256 over the records as JSON lines with sorted keys."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode())
        digest.update(b"\n")
    return digest.hexdigest()
