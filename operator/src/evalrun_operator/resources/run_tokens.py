"""Tokens of a run: one for each hop, so that what one part holds opens no other."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from evalrun_api import names


@dataclass(frozen=True)
class RunTokens:
    """Contents of a run's Secret, by key."""

    by_key: Mapping[str, str] = field(repr=False)

    @property
    def root(self) -> str:
        """The one from which the others were derived; of runs that began with one token, that one."""
        return self.by_key[names.TOKEN_KEY]

    @property
    def operator(self) -> str:
        """The token that the operator sends to the ledger: the first line, as any client."""
        return self.by_key.get(names.OPERATOR_TOKEN, self.root).splitlines()[0].strip()


def derived_tokens(root: str, *, per_hop: bool) -> RunTokens:
    """Return the tokens of a new Secret: HMAC-SHA256 of each key by the root, which only the operator reads."""
    keys = names.HOP_TOKENS if per_hop else ()
    return RunTokens({names.TOKEN_KEY: root, **{key: _derived(root, key) for key in keys}})


def _derived(root: str, key: str) -> str:
    digest = hmac.digest(root.encode(), f"evalrun {key}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
