"""Secrets as the API server keeps them, for what fills those of the chart."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalrun_cluster.client import decode_secret
from evalrun_cluster.errors import ClusterError, ConflictError

NAMESPACE = "judging"


@dataclass
class StoredSecrets:
    """Secrets of one namespace: a write names the version that it changes."""

    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusal: ClusterError | None = None
    other_writer: dict[str, str] = field(default_factory=dict)
    """What another operator writes between our read and our write."""
    writes: int = 0

    async def read_secret(self, name: str, namespace: str) -> dict[str, Any] | None:
        if self.refusal is not None:
            raise self.refusal
        secret = self.kept.get(name) if namespace == NAMESPACE else None
        if secret is None:
            return None
        read = {**secret, "data": dict(secret["data"])}
        if self.other_writer:
            self.add(name, self.other_writer, secret["version"] + 1)
        return read

    async def fill_secret(self, secret: dict[str, Any], values: Mapping[str, str]) -> None:
        kept = self.kept[secret["name"]]
        if kept["version"] != secret["version"]:
            raise ConflictError("another version")
        self.writes += 1
        self.add(secret["name"], {**decode_secret(kept), **values}, kept["version"] + 1)

    def add(self, name: str, values: Mapping[str, str] | None = None, version: int = 1) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in (values or {}).items()}
        self.kept[name] = {"name": name, "data": data, "version": version}

    def texts(self, name: str) -> dict[str, str]:
        return decode_secret(self.kept[name])
