"""Secrets of a user's own authority, as cert-manager writes them: issued, renewed, and renewed badly."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from builders.cluster.cluster import Object

from evalrun_operator.certificates.issuing import Usage, issue

Files = dict[str, str]
"""By name, as in a Secret: tls.crt, tls.key and ca.crt."""


@dataclass
class Issuer:
    """An authority that issues certificates, each time with new keys."""

    usages: Mapping[str, Usage]
    """By Secret, what its certificate is for."""
    _seed: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    _times: int = 0

    def issue(self, now: datetime | None = None) -> dict[str, Files]:
        """Return the contents of each Secret, valid from `now` on; another call renews them."""
        self._times += 1
        parts = {f"{name} {self._times}": usage for name, usage in self.usages.items()}
        issued = issue("evals", parts, now or datetime.now(UTC), self._seed)
        found = dict(zip(self.usages, issued.by_part.values(), strict=True))
        return {
            name: {"tls.crt": one.chain, "tls.key": one.key, "ca.crt": issued.authority} for name, one in found.items()
        }


def tls_secrets(contents: Mapping[str, Files]) -> list[Object]:
    return [
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
            "stringData": contents[name],
        }
        for name in contents
    ]  # fmt: skip
