"""Reads the audit of a prepared directory and checks that its files are still those that were audited."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evalrun_data.governance.manifest import manifest_sha256
from evalrun_data.governance.prepared import AUDIT, MANIFESTS, read_prepared
from evalrun_data.sources import read_bytes
from evalrun_runtime.exits import BadInputError

MAX_AUDIT_BYTES: Final = 256 << 20
MAX_MANIFEST_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class AuditOfDataset:
    """Result of an audit for a dataset."""

    state: str
    role: str
    records: int
    removed: int
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """An audit.json that was read."""

    sha256: str
    state: str
    datasets: Mapping[str, AuditOfDataset]


def read_audit(source: str, base_dir: Path = Path()) -> StoredAudit:
    """Read an audit.json. Raises BadInputError if it is missing or damaged."""
    return parse_audit(read_bytes(source, base_dir, max_bytes=MAX_AUDIT_BYTES), source)


def parse_audit(content: bytes, source: str) -> StoredAudit:
    """Parse an audit.json that was read from `source`. Raises BadInputError if it is damaged."""
    try:
        audit: dict[str, Any] = json.loads(content)
        datasets = {
            name: AuditOfDataset(
                entry["state"], entry["role"], entry["records"], entry["removed"], entry["manifest_sha256"]
            )
            for name, entry in audit["datasets"].items()
        }
        return StoredAudit(hashlib.sha256(content).hexdigest(), audit["state"], datasets)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{source}: is no audit ({type(error).__name__}: {error}): run `evalrun data audit` again"
        raise BadInputError(message) from error


def check_prepared(directory: Path) -> StoredAudit:
    """Read a prepared directory's audit. Raises BadInputError if a manifest changed after the audit."""
    read_prepared(directory)
    audit = read_audit(str(directory / MANIFESTS / AUDIT))
    for name, dataset in audit.datasets.items():
        file = directory / MANIFESTS / f"{name}.jsonl"
        if manifest_sha256(read_bytes(str(file), max_bytes=MAX_MANIFEST_BYTES)) != dataset.manifest_sha256:
            raise BadInputError(f"{file}: was changed after the audit: run `evalrun data audit {directory}` again")
    return audit
