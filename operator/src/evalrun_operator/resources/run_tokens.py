"""Tokens of a run, one per connection between two parts, so that a stolen token opens no other connection."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from evalrun_api import names


@dataclass(frozen=True)
class LedgerAccess:
    """The operator's credentials for a run's ledger."""

    token: str = field(repr=False)
    certificate: tuple[str, str, str] | None = field(default=None, repr=False)
    """Certificate, key and authorities in PEM; None: plain text."""


@dataclass(frozen=True)
class RunTokens:
    """Contents of a run's Secret, by key."""

    by_key: Mapping[str, str] = field(repr=False)

    def add_certificates(self, certificates: Mapping[str, str]) -> "RunTokens":
        """Return the tokens together with the certificates of the run's parts."""
        return RunTokens({**self.by_key, **certificates})

    def add_operator_certificate(self, certificate: str, key: str, authorities: str) -> "RunTokens":
        """Return the tokens together with the operator's client certificate."""
        keys = (*names.certificate_keys(names.OPERATOR), names.AUTHORITY_KEY)
        return self.add_certificates(dict(zip(keys, (certificate, key, authorities), strict=True)))

    @property
    def first(self) -> str:
        """The shared token of releases before per-hop tokens. Rotation never changes it."""
        return self.by_key[names.TOKEN_KEY]

    @property
    def operator(self) -> LedgerAccess:
        """The operator's credentials for the ledger: the token's first line, as for any client, and a certificate."""
        token = self.by_key.get(names.OPERATOR_TOKEN, self.first).splitlines()[0].strip()
        certificate, key = names.certificate_keys(names.OPERATOR)
        if certificate not in self.by_key:
            return LedgerAccess(token)
        return LedgerAccess(token, (self.by_key[certificate], self.by_key[key], self.by_key[names.AUTHORITY_KEY]))


def new_tokens(seed: str, *, per_hop: bool) -> RunTokens:
    """Return the tokens of a new Secret: HMAC-SHA256 of each key by a random seed, which is stored nowhere.

    The ledger also accepts the first token from the operator, so that a rollback to an earlier release keeps working.
    """
    if not per_hop:
        return RunTokens({names.TOKEN_KEY: seed})
    tokens = {key: _derive_token(seed, key) for key in (names.TOKEN_KEY, *names.HOP_TOKENS)}
    tokens[names.OPERATOR_TOKEN] += f"\n{tokens[names.TOKEN_KEY]}"
    return RunTokens(tokens)


def _derive_token(seed: str, key: str) -> str:
    digest = hmac.digest(seed.encode(), f"evalrun {key}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
