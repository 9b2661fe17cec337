"""Writes the tokens of the chart's Secrets, once each.

The chart renders these Secrets without a value, so that two renderings are equal and applying a rendering again keeps
the token.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from evalrun_cluster.errors import ClusterError, ConflictError
from evalrun_cluster.objects import Object

logger = logging.getLogger(__name__)


class Secrets(Protocol):
    """Interface to the API server's Secrets. `evalrun_cluster.client.Cluster` implements it."""

    async def read_secret(self, name: str, namespace: str) -> Object | None:
        """Return a Secret, or None if it does not exist. Raises ClusterError."""
        ...

    async def fill_secret(self, secret: Object, values: Mapping[str, str]) -> None:
        """Write some keys of a Secret. Raises ClusterError, ConflictError if it has changed since it was read."""
        ...


class SharedTokens:
    """Maintains a token in each of the chart's Secrets.

    Every replica of the operator does so, also a standby replica: the API server accepts only the first write.

    Args:
        api: the Secrets.
        places: NAMESPACE/NAME/KEY of each token.
        new_token: returns a random token.
    """

    def __init__(
        self, api: Secrets, places: Sequence[str], new_token: Callable[[], str] = lambda: secrets.token_hex(32)
    ) -> None:
        self._api = api
        self._places = [tuple(place.split("/")) for place in places]
        self._new_token = new_token

    async def fill(self) -> None:
        """Write a token to each Secret that has none."""
        for namespace, name, key in self._places:
            try:
                await self._fill(namespace, name, key)
            except ConflictError:
                logger.info("Secret %s/%s changed in the meantime: it is looked at again", namespace, name)
            except ClusterError as error:
                logger.warning(
                    "pods that need Secret %s/%s cannot start until its key %s holds a token. %s. The operator's "
                    "account needs get and patch on it (rbac.create does that); or name a Secret of your own in the "
                    "chart's existingSecret",
                    namespace, name, key, error,
                )  # fmt: skip

    async def _fill(self, namespace: str, name: str, key: str) -> None:
        secret = await self._api.read_secret(name, namespace)
        if secret is None or (secret.get("data") or {}).get(key):
            # A missing Secret belongs to a release that is being installed or removed.
            return
        await self._api.fill_secret(secret, {key: self._new_token()})
        logger.info("Secret %s/%s had no %s: it holds a random one now", namespace, name, key)
