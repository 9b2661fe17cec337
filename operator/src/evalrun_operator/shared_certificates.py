"""Maintains the certificates in the Secrets of the chart's judge: issues missing certificates and renews them before
they expire.

The chart renders these Secrets without a value, as those of tokens. `SharedTokens` writes the seed of the authority.
"""

import logging
import secrets
from collections.abc import Callable
from datetime import datetime

from evalrun_api import names
from evalrun_cluster.client import decode_secret
from evalrun_cluster.errors import ClusterError, ConflictError
from evalrun_operator.certificates.issuing import Authority, Usage
from evalrun_operator.certificates.judge_certificates import list_secret_usages, make_authority, renew_secret
from evalrun_operator.settings import SharedJudge
from evalrun_operator.shared_tokens import Secrets

logger = logging.getLogger(__name__)


class SharedCertificates:
    """Maintains the certificates. Every replica of the operator does so: the API server accepts only the first write.

    Args:
        api: the Secrets.
        judge: the chart's judge; None: it has no certificates of ours.
        now: the time.
        new_seed: returns a random seed.
    """

    def __init__(
        self,
        api: Secrets,
        judge: SharedJudge | None,
        now: Callable[[], datetime],
        new_seed: Callable[[], str] = lambda: secrets.token_hex(32),
    ) -> None:
        self._api = api
        self._judge = judge
        self._now = now
        self._new_seed = new_seed

    async def fill(self) -> None:
        """Write a certificate to each Secret whose own is missing, ends soon, or comes from another authority."""
        if self._judge is None:
            return
        namespace, name = self._judge.namespace, self._judge.authority_secret
        try:
            held = await self._api.read_secret(name, namespace)
            seed = decode_secret(held or {}).get(names.SEED_KEY)
            if not seed:
                # The release is being installed or removed, or `SharedTokens` has reported why there is no seed.
                return
            for name, usage in list_secret_usages(self._judge).items():
                await self._fill(name, usage, make_authority(self._judge, seed))
        except ConflictError:
            logger.info("Secret %s/%s changed in the meantime: it is looked at again", namespace, name)
        except ClusterError as error:
            logger.warning(
                "Secret %s/%s has no certificate of today's: the shared judge cannot start without one, and its calls "
                "are refused once it has expired. %s. The operator's account needs get and patch on it (rbac.create "
                "does that); or name Secrets of your own in sharedJudge.tls, or write mode: disabled there",
                namespace, name, error,
            )  # fmt: skip

    async def _fill(self, name: str, usage: Usage, authority: Authority) -> None:
        if self._judge is None:
            return
        secret = await self._api.read_secret(name, self._judge.namespace)
        if secret is None:
            return
        wanted = renew_secret(decode_secret(secret), name, usage, authority, self._now(), self._new_seed())
        if wanted is not None:
            await self._api.fill_secret(secret, wanted)
            logger.info("Secret %s/%s holds a new certificate", self._judge.namespace, name)
